"""The server of `kubectl kfext ui`: static files, a stream of changes, and details on request.

It serves this machine alone, only reads, and answers browsers that have opened the printed address.
Other users of the machine can reach the port too, and so can pages of other sites in a browser, by
DNS rebinding for example.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kfext.cli.output import plain
from kfext.cli.ui_state import JobView, Source, change
from kfext.errors import KfextError

ADDRESS = "127.0.0.1"
_CHANGE_SECONDS = 2.0
"""Time between two changes on the stream."""
_END_SECONDS = 0.2
"""The longest time that Ctrl-C waits for open streams."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_OWN_FETCHES = {"same-origin", "none"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


async def serve(source: Source, *, port: int, greet: Callable[[str], None]) -> None:
    """Serve the page until cancelled. `greet` is called with its address. Raises OSError."""
    with socket.create_server((ADDRESS, port)) as listening:
        token, bound = secrets.token_urlsafe(16), listening.getsockname()[1]
        app = make_app(source, token=token, port=bound)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_SECONDS)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            greet(f"http://{ADDRESS}:{bound}/?token={token}")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def make_app(source: Source, *, token: str, port: int) -> web.Application:
    """Return the application for browsers that know the token."""
    page = {item.name: item.read_bytes() for item in files("kfext.cli").joinpath("page").iterdir()}

    async def file(request: web.Request) -> web.Response:
        name = request.match_info.get("name", "ui.html")
        if name not in page:
            raise web.HTTPNotFound
        return web.Response(
            body=page[name], content_type=_TYPES["." + name.rpartition(".")[2]], charset="utf-8"
        )

    async def history(request: web.Request) -> web.Response:
        return _json({view.uid: view.history for view in _requested(source, request)})

    async def details(request: web.Request) -> web.Response:
        views = _requested(source, request)
        return _json({view.uid: {**view.details, "history": view.history} for view in views})

    async def explain(request: web.Request) -> web.Response:
        answers = {}
        for view in _requested(source, request)[:1]:
            try:
                lines = await source.explain(view)
            except KfextError as error:
                lines = [str(error)]
            answers[view.uid] = [plain(line) for line in lines]
        return _json(answers)

    async def events(request: web.Request) -> web.StreamResponse:
        return await _stream(source, request)

    app = web.Application(middlewares=[_guard(token, port)])
    app.on_response_prepare.append(_add_headers)
    app.add_routes(
        [
            web.get("/", file),
            web.get("/events", events),
            web.get("/history", history),
            web.get("/details", details),
            web.get("/explain", explain),
            web.get("/{name}", file),
        ]
    )
    return app


def _guard(token: str, port: int) -> Middleware:
    """Refuse all but reads by pages of this server, in browsers that have opened the address."""
    cookie, hosts = f"kfext-{port}", {f"{ADDRESS}:{port}", f"localhost:{port}"}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in hosts:
            raise web.HTTPForbidden(text=f"open http://{ADDRESS}:{port}\n")
        if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_FETCHES:
            raise web.HTTPForbidden(text="other sites may not read this page\n")
        if request.path == "/" and _matches(token, request.query.get("token", "")):
            answer = web.HTTPFound("/")
            answer.set_cookie(cookie, token, httponly=True, samesite="Strict")
            raise answer
        if not _matches(token, request.cookies.get(cookie, "")):
            raise web.HTTPForbidden(text="open the address that `kubectl kfext ui` has printed\n")
        return await handler(request)

    return check


def _matches(token: str, candidate: str) -> bool:
    return secrets.compare_digest(candidate.encode(errors="replace"), token.encode())


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _requested(source: Source, request: web.Request) -> list[JobView]:
    """Return the jobs with the uids that a request names, or all jobs if it names none."""
    uids = set(request.query.getall("id", []))
    return [view for view in source.jobs() if not uids or view.uid in uids]


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


async def _stream(source: Source, request: web.Request) -> web.StreamResponse:
    """Send the state, then its changes; empty changes too, which show that the server is alive."""
    await source.ready()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    state = source.state()
    event, body = "state", state
    while True:
        try:
            await response.write(b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(body)))
        except ConnectionResetError:
            return response
        await asyncio.sleep(_CHANGE_SECONDS)
        before, state = state, source.state()
        event, body = "change", change(before, state)
