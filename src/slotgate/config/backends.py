"""Settings of the backends: servers that already run, and engines that we start ourselves."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    Tag,
    ValidationInfo,
    model_validator,
)

from slotgate.capacity.devices import parse_memory
from slotgate.config.address import check_url, default_name
from slotgate.config.keys import KeyReference, Sources, problem
from slotgate.config.section import Count, Name, Section
from slotgate.config.units import Seconds
from slotgate.errors import ConfigError

SPEC_PREFIXES = ("hf:", "pypi:")
DEFAULT_MODEL = "default"

# Flags that Slotgate sets itself, or whose value is a secret; each with what to use instead.
OWNED_FLAGS = {
    "--host": "Slotgate chooses where its engine listens",
    "--port": "Slotgate chooses where its engine listens",
    "-m": "use model",
    "--model": "use model",
    "-np": "use parallel",
    "--parallel": "use parallel",
    "-c": "use ctx_per_slot",
    "--ctx-size": "use ctx_per_slot",
    "-ctk": "use cache_type",
    "--cache-type-k": "use cache_type",
    "-ctv": "use cache_type",
    "--cache-type-v": "use cache_type",
    "-kvu": "use kv_unified",
    "--kv-unified": "use kv_unified",
    "--kv-unified-per-slot": "use kv_unified and ctx_per_slot",
    "-b": "Slotgate plans with batches of 512",
    "--batch-size": "Slotgate plans with batches of 512",
    "-ub": "Slotgate plans with batches of 512",
    "--ubatch-size": "Slotgate plans with batches of 512",
    "-t": "use threads",
    "--threads": "use threads",
    "-a": "use alias",
    "--alias": "use alias",
    "--api-key": "Slotgate keeps its engine to itself",
    "--api-key-file": "Slotgate keeps its engine to itself",
    "-hft": "set the environment variable HF_TOKEN",
    "--hf-token": "set the environment variable HF_TOKEN",
}


def _check_memory(text: str) -> str:
    try:
        parse_memory(text)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("--memory: ")) from error
    return text


CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class TimeoutSettings(Section):
    """How long a backend may be silent."""

    connect: Seconds = Field(
        default=5.0, ge=0.01, description="The longest time that a connection may take to open."
    )
    first_byte: Seconds = Field(
        default=300.0,
        ge=0.1,
        description="The longest time from a request sent to the first byte of its answer.",
    )
    idle: Seconds = Field(
        default=300.0, ge=0.1, description="The longest silence within an answer that has begun."
    )


class BackendBase(Section):
    """What every backend has."""

    name: Name = Field(
        default="",
        examples=["left", "right"],
        description="What the backend is called in logs, metrics and commands.",
        json_schema_extra={"default_text": "from the URL or the model's file name"},
    )
    alias: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        examples=["qwen3-8b"],
        description="The model name that clients ask for, instead of what the backend says.",
    )
    aliases: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        default=(),
        examples=[["fast", "gpt-4o-mini"]],
        description="Further names by which clients may ask for the model.",
    )
    timeouts: TimeoutSettings = Field(
        default=TimeoutSettings(), description="How long the backend may be silent."
    )
    restart_grace: Seconds = Field(
        default=10.0,
        ge=0.0,
        le=3600.0,
        description="How long newcomers wait for a backend that was ready and went away, "
        "as it may be restarting.",
    )


class ModelSettings(Section):
    """A model of a router, and what clients call it."""

    id: str = Field(
        min_length=1,
        max_length=1024,
        examples=["qwen3-8b-q4_k_m"],
        description="What the router calls the model: its id in `/v1/models`, or an alias there.",
    )
    alias: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        examples=["qwen3-8b"],
        description="The model name that clients ask for, instead of the router's.",
    )
    aliases: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        default=(),
        examples=[["fast", "gpt-4o-mini"]],
        description="Further names by which clients may ask for the model.",
    )


class ServerSettings(BackendBase):
    """A server that already runs: a llama-server, or another that speaks OpenAI's API."""

    url: Annotated[str, AfterValidator(check_url)] = Field(
        description="Where the server listens: http://, https:// or unix:///path.",
        examples=["http://127.0.0.1:8081"],
    )
    api_key_env: str | None = Field(
        default=None,
        examples=["LEFT_API_KEY"],
        description="The environment variable that holds the server's own API key.",
    )
    api_key_file: str | None = Field(
        default=None,
        examples=["/run/secrets/left"],
        description="The file that holds the server's own API key.",
    )
    slots: Count | None = Field(
        default=None,
        ge=1,
        le=65536,
        examples=[4],
        description="The most slots to use; for a server that reports none, its concurrency.",
    )
    kv_pool: Count | None = Field(
        default=None,
        ge=64,
        le=1 << 30,
        examples=[32768],
        description="The tokens that all slots hold together: what -c (--ctx-size) says at the "
        "server's start. Without -np (--parallel), or with -kvu, its slots share them, and "
        "requests are admitted so that they do not overflow.",
        json_schema_extra={
            "unit": "tokens",
            "default_text": "four slots: one slot's context until more is seen in use; "
            "else each slot its own",
        },
    )

    models: tuple[ModelSettings, ...] = Field(
        default=(),
        description="Of a llama-server in router mode: what clients call its models.",
    )

    _api_key: SecretStr | None = PrivateAttr(None)

    @property
    def api_key(self) -> SecretStr | None:
        """The key that the server wants from us."""
        return self._api_key

    @model_validator(mode="before")
    @classmethod
    def _is_named(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("url"), str):
            return {"name": default_name(data["url"]), **data}
        return data

    @model_validator(mode="after")
    def _key_is_found(self, info: ValidationInfo) -> Self:
        reference = KeyReference("api_key", self.api_key_env, self.api_key_file)
        self._api_key = reference.secret(Sources.of(info.context))
        return self


class ManagedSettings(BackendBase):
    """An engine that Slotgate starts, watches and restarts."""

    model: str = Field(
        min_length=1,
        max_length=4096,
        description="The path of a GGUF file, hf:org/repo[:quant], pypi:package, or default.",
        examples=["~/models/qwen3-8b-q4.gguf"],
    )
    parallel: Count | None = Field(
        default=None,
        ge=1,
        le=256,
        examples=[4],
        description="The number of slots, each holding one running sequence.",
        json_schema_extra={
            "default_text": "4; with memory and ctx_per_slot as many as fit",
        },
    )
    ctx_per_slot: Count | None = Field(
        default=None,
        ge=64,
        le=1 << 24,
        examples=[8192],
        description="The context of each slot, in tokens: prompt and answer together.",
        json_schema_extra={
            "unit": "tokens",
            "default_text": "4096, or what the model can if less; with memory, as long as fits",
        },
    )
    memory: Annotated[str, AfterValidator(_check_memory)] | None = Field(
        default=None,
        examples=["24GiB", "24GiB,16GiB", "auto"],
        description="The memory that model and slots may fill: of each GPU, else of the host.",
        json_schema_extra={"default_text": "what is free, and only what the slots need of it"},
    )
    cache_type: CacheType | None = Field(
        default=None,
        examples=["q8_0"],
        description="The type of the slots' keys and values; smaller ones hold more context.",
        json_schema_extra={"default_text": "f16"},
    )
    kv_unified: bool = Field(
        default=False,
        description=(
            "Whether the slots share one pool, each limited to its part: "
            "that takes less for models with a sliding window."
        ),
    )
    threads: Count | None = Field(
        default=None,
        ge=1,
        le=4096,
        examples=[4],
        description="The CPU threads that the engine computes with.",
        json_schema_extra={"default_text": "the engine's own choice"},
    )
    llama_server: str | None = Field(
        default=None,
        min_length=1,
        examples=["/usr/local/bin/llama-server"],
        description="The llama-server binary to run instead of the embedded engine.",
        json_schema_extra={"default_text": "the embedded engine"},
    )
    args: tuple[str, ...] = Field(
        default=(),
        examples=[["--flash-attn", "on"]],
        description="Further llama-server flags, as a list of words; they need llama_server.",
    )

    _base: Path = PrivateAttr(Path())

    @property
    def model_spec(self) -> str | None:
        """The model as it is to be looked for; None is the default one.

        A relative path starts from the directory of the configuration file.
        """
        if self.model == DEFAULT_MODEL:
            return None
        if self.model.startswith(SPEC_PREFIXES):
            return self.model
        place = self._base / Path(self.model).expanduser()
        return str(place) if place.exists() else self.model

    @property
    def llama_server_path(self) -> str | None:
        """The binary; a bare name is left to the search path."""
        if self.llama_server is None or "/" not in self.llama_server:
            return self.llama_server
        return str(self._base / Path(self.llama_server).expanduser())

    @model_validator(mode="before")
    @classmethod
    def _is_named(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("model"), str):
            return {"name": PurePosixPath(data["model"].rpartition(":")[2]).stem, **data}
        return data

    @model_validator(mode="after")
    def _owns_its_flags(self, info: ValidationInfo) -> Self:
        self._base = Sources.of(info.context).base
        for index, word in enumerate(self.args):
            if (instead := OWNED_FLAGS.get(word.partition("=")[0])) is not None:
                raise problem(
                    f"{word.partition('=')[0]} cannot be set here: {instead}", "args", index
                )
        if self.args and self.llama_server is None:
            raise problem("the embedded engine takes no flags; set llama_server too", "args")
        return self


def _kind(data: Any) -> str | None:
    if isinstance(data, BackendBase):
        return "server" if isinstance(data, ServerSettings) else "managed"
    if not isinstance(data, dict) or ("url" in data) == ("model" in data):
        return None
    return "server" if "url" in data else "managed"


Backend = Annotated[
    Annotated[ServerSettings, Tag("server")] | Annotated[ManagedSettings, Tag("managed")],
    Discriminator(
        _kind,
        custom_error_type="setting",
        custom_error_message="a backend has either url (it already runs) or model (we start it)",
    ),
]
