"""Channels of grpclib, the extra: HTTP/2 in Python on the caller's own loop, with no thread and no C core.

A `grpc.aio.Channel` in front of a grpclib channel, so that the generated stubs, which ask a channel for callables by
path, run on it as they are. What grpclib raises becomes the `AioRpcError` that grpcio would have raised; whatever it
does not say for certain becomes a status without a detail, which proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Final, NoReturn, Self

import grpc
import grpc.aio
from grpclib.client import Channel
from grpclib.const import Cardinality, Status
from grpclib.encoding.base import CodecBase, StatusDetailsCodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError

from fencepost.errors import STATUS_METADATA
from fencepost.transports import MESSAGE_BYTES_MAX, RECONNECT_MS_MAX, RECONNECT_MS_MIN, ClientCertificates

CONNECT_MS_MAX: Final = 5_000

_State = grpc.ChannelConnectivity
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class _Bytes(CodecBase):
    """Messages arrive here serialized: the stub knows their types."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 (the base)
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:  # noqa: ARG002 (the base)
        return data


class _RawDetails(StatusDetailsCodecBase):
    """Details stay bytes: errors.py decides what they are worth."""

    def encode(self, status: Status, message: str | None, details: Any) -> bytes:  # noqa: ARG002 (the base)
        return bytes(details)

    def decode(self, status: Status, message: str | None, data: bytes) -> bytes:  # noqa: ARG002 (the base)
        return data


def _error(code: grpc.StatusCode, details: str | None, raw: bytes | None = None) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(STATUS_METADATA, raw)] if raw is not None else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=details)


def _answered(error: GRPCError) -> grpc.aio.AioRpcError:
    raw = error.details if isinstance(error.details, bytes) else None
    return _error(_CODES[error.status.value], error.message, raw)


class GrpclibChannel(grpc.aio.Channel):
    """One connection to one address. Belongs to the loop that runs when it is made."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._protocol: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._changed = asyncio.Event()
        self._open_calls = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 (the base)
        """Return READY only while the connection stands."""
        if self._closed:
            return _State.SHUTDOWN
        if self._protocol is not None and not self._protocol.handler.connection_lost:
            return _State.READY
        if self._connecting is None:
            if not try_to_connect:
                return _State.TRANSIENT_FAILURE if self._failures else _State.IDLE
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return _State.CONNECTING

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return once the state is another one. The loss of a connection is seen when the state is asked for."""
        while self.get_state() is last_observed_state:
            self._changed.clear()
            await self._changed.wait()

    async def channel_ready(self) -> None:
        """Return once the connection stands."""
        while (state := self.get_state(try_to_connect=True)) is not _State.READY:
            await self.wait_for_state_change(state)

    async def _connect(self) -> None:
        """Try once; after a failure keep the state for a while that grows, so that nobody connects in a circle."""
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                self._protocol = await self._channel.__connect__()
            self._failures = 0
        except (OSError, TimeoutError):
            pause_ms = min(RECONNECT_MS_MIN * 2 ** min(self._failures, 10), RECONNECT_MS_MAX)
            self._failures += 1
            await asyncio.sleep(pause_ms / 1000)
        finally:
            self._connecting = None
            self._changed.set()

    async def close(self, grace: float | None = None) -> None:
        """Let open calls finish for `grace` seconds, then end them."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        if self._connecting is not None:
            self._connecting.cancel()
        if grace:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._channel.close()

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001, FBT002 (the base)
    ) -> Any:
        """Return a callable for one method."""
        assert request_serializer is not None
        assert response_deserializer is not None

        async def answer(request: Any, timeout: float | None, metadata: Any) -> Any:  # noqa: ASYNC109
            answers = self._exchange(method, Cardinality.UNARY_UNARY, request_serializer(request), timeout, metadata)
            found = [raw async for raw in answers]
            if len(found) != 1:
                raise _error(grpc.StatusCode.INTERNAL, f"{len(found)} answers to one request")
            return response_deserializer(found[0])

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> asyncio.Task[Any]:
            # Begun at once, and cancelled by whoever cancels it or waits for it.
            return asyncio.get_running_loop().create_task(answer(request, timeout, metadata))

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001, FBT002 (the base)
    ) -> Any:
        """Return a callable for one method."""
        assert request_serializer is not None
        assert response_deserializer is not None

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> _Answers:
            raw = self._exchange(method, Cardinality.UNARY_STREAM, request_serializer(request), timeout, metadata)
            return _Answers(raw, response_deserializer, self._ending)

        return call

    def stream_unary(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: no service of Fencepost has such a call."""
        raise NotImplementedError("calls that stream requests are not carried by this transport")

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        """Return nothing to call: stubs ask for every method when they are made."""
        return self.stream_unary

    async def _exchange(
        self,
        method: str,
        cardinality: Cardinality,
        message: bytes,
        timeout: float | None,  # noqa: ASYNC109 (the deadline that the service is told)
        metadata: Sequence[tuple[str, str]],
    ) -> AsyncGenerator[bytes, None]:
        if len(message) > MESSAGE_BYTES_MAX:
            raise _error(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the request is over {MESSAGE_BYTES_MAX} bytes")
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._open_calls += 1
        self._idle.clear()
        try:
            async with self._channel.request(
                method, cardinality, bytes, bytes, timeout=timeout, metadata=tuple(metadata or ())
            ) as stream:
                await stream.send_message(message, end=True)
                async for raw in stream:
                    if len(raw) > MESSAGE_BYTES_MAX:
                        raise _error(grpc.StatusCode.RESOURCE_EXHAUSTED, f"an answer is over {MESSAGE_BYTES_MAX} bytes")
                    yield raw
        except GRPCError as error:
            raise _answered(error) from error
        except TimeoutError as error:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "deadline exceeded") from error
        except (StreamTerminatedError, OSError) as error:
            # At its deadline a service may cut the call off a moment before this side does.
            over = deadline is not None and loop.time() >= deadline
            code = grpc.StatusCode.DEADLINE_EXCEEDED if over else grpc.StatusCode.UNAVAILABLE
            raise _error(code, "the connection was lost") from error
        except (grpc.aio.AioRpcError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:  # whatever the HTTP/2 layer raises, nothing is proved by it
            raise _error(grpc.StatusCode.UNKNOWN, f"the transport failed: {type(error).__name__}") from error
        finally:
            self._open_calls -= 1
            if not self._open_calls:
                self._idle.set()


class _Answers:
    """An open stream of answers, which can be cancelled without being waited for."""

    def __init__(
        self, raw: AsyncGenerator[bytes, None], decode: Callable[[bytes], Any], ending: set[asyncio.Task[None]]
    ) -> None:
        self._raw = raw
        self._decode = decode
        self._ending = ending

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self._raw:
            yield self._decode(message)

    async def read(self) -> Any:
        """Return the next answer, or grpc.aio.EOF at the end."""
        message = await anext(self._raw, None)
        return grpc.aio.EOF if message is None else self._decode(message)

    def cancel(self) -> bool:
        """End the stream, if it is open."""
        task = asyncio.get_running_loop().create_task(_closed(self._raw))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return True


async def _closed(answers: AsyncGenerator[bytes, None]) -> None:
    await answers.aclose()


def _ssl_context(certificates: ClientCertificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(certificates.authority))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(str(certificates.certificate), str(certificates.key))
    context.set_alpn_protocols(["h2"])
    return context


def open_channel(address: str, certificates: ClientCertificates | None) -> grpc.aio.Channel:
    """Return a channel that connects when it is asked to. Reads the certificates, where there are some, once."""
    codecs: dict[str, Any] = {"codec": _Bytes(), "status_details_codec": _RawDetails()}
    if certificates is None:
        return GrpclibChannel(Channel(path=address.removeprefix("unix:"), **codecs))
    host, _, port = address.rpartition(":")
    return GrpclibChannel(Channel(host=host.strip("[]"), port=int(port), ssl=_ssl_context(certificates), **codecs))
