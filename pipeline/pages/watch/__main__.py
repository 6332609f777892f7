"""Watch a run: `dsm watch configs/demo.yaml`, beside the workflow or without it.

A page on this machine alone (127.0.0.1), brought up to date every few seconds; on a cluster forward its port
(`ssh -L 8517:127.0.0.1:8517 HOST`). `--static FILE` writes the page to a file instead, again and again.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.config.root import ConfigError
from pipeline.pages.local_page import LocalServer, fill
from pipeline.pages.watch.state import Watch
from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.errors import InputError
from pipeline.report.page import embed, script_hash
from pipeline.status import read_graph

PORT = 8517
SECONDS = 3.0  # between two looks
FOLDER = Path(__file__).parent
POLICY = "frame-ancestors 'none'"  # the page has its own for the rest, since it may be a file


def page(state: dict[str, Any] | None, seconds: float) -> str:
    """Return the page, which lets the browser run no script but its own: with `state` it shows that and loads
    itself after `seconds`, else it asks for the state.
    """
    script = (FOLDER / "page.js").read_text()
    own = f"script-src {script_hash(script)}; connect-src 'self'"
    refresh = f'<meta http-equiv="refresh" content="{seconds:g}">' if state and seconds else ""
    parts = {"policy": f"default-src 'none'; style-src 'unsafe-inline'; {own}", "refresh": refresh}
    files = {"style": FOLDER / "page.css", "script": script}
    return fill(FOLDER / "page.html", parts | files | {"data": embed({"state": state, "seconds": seconds})})


def serve(watch: Watch, port: int) -> LocalServer:
    """Return the server of the page and of `state.json`, what it shows, which is at most `SECONDS` old."""
    seen: dict[str, Any] = {}
    looked = 0.0

    def state(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal seen, looked
        if not seen or time.monotonic() - looked > SECONDS:
            seen, looked = watch.look(), time.monotonic()
        return seen

    return LocalServer(lambda _: page(None, SECONDS), port, {"state.json": state}, {}, POLICY)


def write(watch: Watch, file: Path, seconds: float) -> None:
    """Write the page as it is now, whole or not at all."""
    with atomic_write(file) as partial:
        partial.write_text(page(watch.look(), seconds))


def _parser() -> argparse.ArgumentParser:
    usage = "%(prog)s CONFIG... [options]"
    parser = argparse.ArgumentParser(prog="dsm watch", usage=usage, description=__doc__.split("\n")[0])
    parser.add_argument("--configfile", nargs="+", required=True, help="the same as CONFIG...")
    parser.add_argument("--config", nargs="*", default=[], metavar="KEY=VALUE", help="as for snakemake")
    parser.add_argument("--port", type=int, default=PORT, help="0: any free one")
    parser.add_argument(
        "--static", type=Path, metavar="FILE", help="write the page here instead of serving it"
    )
    parser.add_argument(
        "--every", type=float, default=10.0, help="seconds between two static pages; 0: write one"
    )
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        watch = Watch(read_graph(arguments.configfile, arguments.config))
        if arguments.static is None:
            server = serve(watch, arguments.port)
            print(server.address, flush=True)
            server.serve_forever()
        write(watch, arguments.static, arguments.every)
        while arguments.every:
            time.sleep(arguments.every)
            write(watch, arguments.static, arguments.every)
    except (InputError, ConfigError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
