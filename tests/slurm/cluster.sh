#!/usr/bin/env bash
# A Slurm cluster of one node, this machine: `cluster.sh start FOLDER` and `cluster.sh stop FOLDER`.
# Configuration, keys, state and logs live in FOLDER. Jobs' own srun finds the cluster only through /etc/slurm/slurm.conf,
# which links to FOLDER while it runs; a machine that has one already belongs to a cluster and is left alone.
set -euo pipefail

folder=$(realpath -m "$2")

write_configuration() {
  mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
  chmod 700 "$folder/munge"
  dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
  chmod 600 "$folder/munge/key"
  cat > "$folder/slurm.conf" <<EOF
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MpiDefault=none
KillWait=5
JobRequeue=0
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
}

start() {
  if [ -e /etc/slurm/slurm.conf ]; then
    echo "/etc/slurm/slurm.conf exists: this machine belongs to a Slurm cluster already" >&2
    exit 1
  fi
  write_configuration
  mkdir -p /etc/slurm
  ln -sf "$folder/slurm.conf" /etc/slurm/slurm.conf
  munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
  slurmctld
  slurmd -N "$(hostname -s)"
  for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then return; fi
    sleep 0.5
  done
  echo "Slurm did not come up; see $folder/slurmctld.log and $folder/slurmd.log" >&2
  tail -n 5 "$folder"/slurm*.log >&2
  exit 1
}

stop() {
  for pid in "$folder/slurmd.pid" "$folder/slurmctld.pid" "$folder/munge/pid"; do
    if [ -f "$pid" ]; then kill "$(cat "$pid")" 2>/dev/null || true; fi
  done
  if [ "$(readlink /etc/slurm/slurm.conf)" = "$folder/slurm.conf" ]; then rm /etc/slurm/slurm.conf; fi
}

"$1"
