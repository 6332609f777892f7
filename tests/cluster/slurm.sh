#!/usr/bin/env bash
# Run a command on a Slurm cluster of two nodes with eight pretended GPUs each, all on this machine:
#   tests/cluster/slurm.sh COMMAND...
# Debian's packages, the configuration, the fake devices and all state live in a mount namespace and a temporary folder;
# the processes live in a PID namespace. When the command ends, nothing of it is left.
set -euo pipefail

packages=(slurmctld slurmd slurmdbd slurm-client munge mariadb-server-core mariadb-client-core)
here=$(realpath "$(dirname "$0")")

# Each node is a PID namespace of its own: to kill its first process is to cut its power. `slurm.sh --node NAME`, inside
# the cluster, switches it on again.
start_node() {
  unshare --pid --fork --kill-child --mount-proc slurmd -D -N "$1" < /dev/null > /dev/null 2>&1 &
  echo $! > "$CLUSTER/$1.pid"
}

if [ "${1:-}" = --node ]; then
  start_node "$2"
  exit
fi
if [ "${1:-}" != --inside ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null || ! unshare --mount --pid --fork true 2> /dev/null; then
    echo "slurm.sh: this system does not allow it: it takes root, apt-get, and mount and PID namespaces" >&2
    exit 77
  fi
  folder=$(mktemp --directory)
  status=0
  unshare --mount --pid --fork --kill-child --mount-proc "$here/slurm.sh" --inside "$folder" "$@" || status=$?
  rm -rf "$folder"
  exit "$status"
fi

export DS_ACCELERATOR=cpu  # the GPUs that Slurm gives are pretended
export CLUSTER=$2  # `tests/test_cluster.py` finds nodes, records and logs here
shift 2

# Packages are installed into layers over the machine's folders.
install() {
  mount -t tmpfs tmpfs "$CLUSTER"
  for name in usr etc var; do
    mkdir -p "$CLUSTER/layers/$name/"{upper,work}
    mount -t overlay overlay -o "lowerdir=/$name,upperdir=$CLUSTER/layers/$name/upper,workdir=$CLUSTER/layers/$name/work" "/$name"
  done
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d  # packages shall not start their services
  chmod +x /usr/sbin/policy-rc.d
  if ! command -v slurmctld slurmd slurmdbd munged mariadbd > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
  fi > "$CLUSTER/apt.log" 2>&1 || { cat "$CLUSTER/apt.log" >&2; exit 1; }
  python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target "$CLUSTER/python" \
    -r "$here/../../requirements/slurm.lock"
  export PYTHONPATH=$CLUSTER/python
}

configure() {
  local host number
  host=$(hostname -s)
  mkdir -p "$CLUSTER"/{state,munge,records,gpus} /etc/slurm
  chmod 700 "$CLUSTER/munge"
  dd if=/dev/urandom of="$CLUSTER/munge/key" bs=128 count=1 status=none
  chmod 600 "$CLUSTER/munge/key"
  for number in $(seq 0 7); do mknod "$CLUSTER/gpus/gpu$number" c 1 3; done
  # Each task of a job notes what it was given.
  cat > "$CLUSTER/record.sh" <<END
#!/bin/sh
env | grep -E '^(SLURM_|CUDA_VISIBLE)' | sort > "$CLUSTER/records/\$SLURM_JOB_ID.\${SLURM_STEP_ID:-batch}.\$SLURMD_NODENAME.\$\$"
END
  chmod +x "$CLUSTER/record.sh"
  echo "127.0.0.1 n1 n2" >> /etc/hosts
  echo "Name=gpu File=$CLUSTER/gpus/gpu[0-7]" > /etc/slurm/gres.conf
  cat > /etc/slurm/slurm.conf <<END
ClusterName=two
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge/socket
CryptoType=crypto/munge
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStoragePass=$CLUSTER/munge/socket
AccountingStoreFlags=job_comment
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool-%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdLogFile=$CLUSTER/slurmd-%n.log
SlurmctldPort=16817
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$CLUSTER/record.sh
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=20
KillWait=10
MinJobAge=7200
MpiDefault=none
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=16821 CPUs=128 RealMemory=2000000 Gres=gpu:8
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=16822 CPUs=128 RealMemory=2000000 Gres=gpu:8
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=cancelled Nodes=ALL PriorityTier=1 PreemptMode=CANCEL MaxTime=INFINITE
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF MaxTime=INFINITE
END
  cat > /etc/slurm/slurmdbd.conf <<END
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge/socket
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
PidFile=$CLUSTER/slurmdbd.pid
LogFile=$CLUSTER/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=16818
StorageUser=slurm
StoragePass=slurm
END
  chmod 600 /etc/slurm/slurmdbd.conf
}

# The database of the accounting, and who may use which account.
start_accounting() {
  mariadb-install-db --no-defaults --user=root --datadir="$CLUSTER/database" --auth-root-authentication-method=normal \
    --skip-test-db > "$CLUSTER/database.log" 2>&1 || { cat "$CLUSTER/database.log" >&2; exit 1; }
  printf '%s;\n' "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm'" "GRANT ALL ON *.* TO slurm@'127.0.0.1'" > "$CLUSTER/grant.sql"
  mariadbd --no-defaults --user=root --datadir="$CLUSTER/database" --socket="$CLUSTER/database.socket" --port=16818 \
    --bind-address=127.0.0.1 --skip-name-resolve --init-file="$CLUSTER/grant.sql" >> "$CLUSTER/database.log" 2>&1 &
  await "the database" test -S "$CLUSTER/database.socket"
  slurmdbd
  await "slurmdbd" sacctmgr --noheader --parsable2 list cluster
  sacctmgr --immediate --quiet add cluster two
  sacctmgr --immediate --quiet add account lab
  sacctmgr --immediate --quiet add user root account=lab
}

# Wait until a command succeeds.
await() {
  local what=$1
  shift
  for _ in $(seq 60); do
    if "$@" > /dev/null 2>&1; then return; fi
    sleep 0.5
  done
  echo "slurm.sh: $what did not come up" >&2
  tail -n 5 "$CLUSTER"/*.log >&2
  exit 1
}

both_idle() {
  [ "$(sinfo --noheader --partition=main --format=%D/%T)" = 2/idle ]
}

start() {
  munged --force --key-file="$CLUSTER/munge/key" --socket="$CLUSTER/munge/socket" --pid-file="$CLUSTER/munge/pid" \
    --log-file="$CLUSTER/munge/log" --seed-file="$CLUSTER/munge/seed"
  start_accounting
  slurmctld
  start_node n1
  start_node n2
  await "the cluster" both_idle
}

install
configure
start
"$@"
