"""A prefix that is read from disk gives the tokens of reading it anew, and a damaged one is ignored."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from openai_harmony import Conversation, Message, Role, SystemContent

from agent.engine.llama import disk_cache
from agent.engine.llama.disk_cache import (
    SEGMENT_TOKENS,
    DiskCache,
    DiskCacheOptions,
    MissingSegment,
)
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.llama.prefix_cache import MAX_CHECKPOINTS, PrefixCache
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import Finished, Prefill, Request, Sampling, Tokens
from agent.formats.harmony.encoding import load_encoding
from agent.tiny import vocabulary
from tests.support import random_gguf
from tests.support.waiting import wait_until

SOURCE = random.Random(3)
IDS = [SOURCE.randrange(512) for _ in range(3000)]
OTHER = [(token + 1) % 512 for token in IDS]
HEAD = 700
"""Tokens of a head that all conversations have: one full segment and a part of another."""


class Reply:
    """What one generation gave."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.first: dict[int, float] = {}
        """The likeliest first tokens, with their log probabilities."""
        self.cached = -1
        self.prefills: list[Prefill] = []


async def generate(engine: LlamaEngine, prompt: Sequence[int], **fields: object) -> Reply:
    reply = Reply()
    sampling = Sampling(temperature=0)
    options = {"max_tokens": 24, "sampling": sampling, "head_tokens": HEAD, "logprobs": 8} | fields
    async for event in engine.generate(Request(prompt, **options)):  # type: ignore[arg-type]
        match event:
            case Tokens(ids, logprobs):
                if logprobs and not reply.ids:
                    reply.first = dict(logprobs[0].top)
                reply.ids += ids
            case Prefill():
                reply.prefills.append(event)
            case Finished():
                reply.cached = event.cached_tokens
    return reply


def process(
    path: Path, folder: Path | None, *prompts: Sequence[int], **fields: object
) -> list[Reply]:
    """Load the model as a new process would, run prompts one after the other, and close it."""

    async def run() -> list[Reply]:
        disk = None if folder is None else DiskCacheOptions(folder, 10**9)
        engine = LlamaEngine(
            path, placement=Placement(4096), threads=ThreadCounts(1, 1), disk_cache=disk
        )
        await engine.load()
        try:
            replies = [await generate(engine, prompt, **fields) for prompt in prompts]
            # At its end it writes for a time only, however busy this machine is.
            assert engine._worker is not None
            cache = engine._worker.loop._cache
            await wait_until(lambda: not cache.unsaved)
            return replies
        finally:
            await engine.close()

    return asyncio.run(run())


def same(a: Reply, b: Reply) -> bool:
    """Whether two replies began alike. Where cells or steps are in another order, sums are rounded
    otherwise, and a model of random weights soon goes on with another token; a wrong window is off
    by 5."""
    both = a.first.keys() & b.first.keys()
    return len(both) >= 6 and all(abs(a.first[token] - b.first[token]) < 0.05 for token in both)


def segments(folder: Path) -> list[Path]:
    return [path for path, _ in disk_cache.cache_files(folder)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers all have full attention."""
    return random_gguf.write_llama_model(tmp_path_factory.mktemp("plain") / "plain.gguf")


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        (IDS[:1500], 1499),  # the same once more
        (IDS[:1500] + OTHER[:300], 1500),  # goes on: at the end, within the window
        (IDS[:1490] + OTHER[:300], HEAD),  # diverges behind the last window that was kept
        (IDS[:900] + OTHER[:300], HEAD),  # another conversation with the same head
        (IDS[:600] + OTHER[:300], 0),  # another head
    ],
)
def test_restored_prefix_gives_the_same_tokens(
    gguf: Path, tmp_path: Path, prompt: list[int], cached: int
) -> None:
    process(gguf, tmp_path, IDS[:1500], max_tokens=0)
    (anew,), (restored,) = process(gguf, None, prompt), process(gguf, tmp_path, prompt)
    assert same(restored, anew) and len(anew.ids) == 24
    assert restored.cached == cached and anew.cached == 0
    assert restored.prefills[-1] == Prefill(len(prompt), len(prompt), cached)


def test_what_is_computed_aside_makes_way_for_files(gguf: Path, tmp_path: Path) -> None:
    """Both go through the same sequence."""
    looked = IDS[:700] + OTHER[:500]

    async def look(engine: LlamaEngine) -> Reply:
        return await generate(engine, looked, max_tokens=1, background=True, auxiliary=True)

    async def run() -> list[Reply]:
        disk = DiskCacheOptions(tmp_path, 10**9)
        placement, threads = Placement(4096), ThreadCounts(1, 1)
        engine = LlamaEngine(gguf, placement=placement, threads=threads, disk_cache=disk)
        await engine.load()
        is_first = not segments(tmp_path)
        try:
            if is_first:
                await generate(engine, IDS[:1500], max_tokens=0)
            replies = [await look(engine), await generate(engine, IDS[:1500])]
            if is_first:  # it is written while the engine idles
                await wait_until(lambda: len(segments(tmp_path)) >= 3)
            return [*replies, await look(engine)]
        finally:
            await engine.close()

    expected = process(gguf, None, looked)[0], process(gguf, None, IDS[:1500])[0]
    for _ in ("written", "read"):
        first, conversation, again = asyncio.run(run())
        assert same(first, expected[0]) and same(again, expected[0])
        assert same(conversation, expected[1]) and conversation.cached == 1499


@pytest.mark.sampled(7)
@pytest.mark.parametrize("common", [1500, 1400, 513, 512, 511, 65, 63])
def test_full_attention_restores_any_length(plain: Path, tmp_path: Path, common: int) -> None:
    process(plain, tmp_path, IDS[:1500], max_tokens=0)
    prompt = IDS[:common] + OTHER[common : min(common + 200, 1500)]
    (anew,), (restored,) = process(plain, None, prompt), process(plain, tmp_path, prompt)
    assert same(restored, anew)
    assert restored.cached == (min(common, 1499) if common >= 64 else 0)


@pytest.mark.long
def test_restored_prefix_gives_the_same_tokens_on_the_embedded_model(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    # Each ends with what the model knows: where it cannot tell what follows, rounding decides.
    sums = [f"What is {a} + {a + 7}?" for a in range(100, 180)]
    long, other = _conversation([*sums, "hi"]), _conversation(["hi", "2 * 8", *sums[:3], "hi"])
    head = next(at for at, (a, b) in enumerate(zip(long, other, strict=False)) if a != b)
    prompts = [long, [*long, *_conversation([sums[0], "hi"])[head:]], other]
    anew = [process(tiny_gguf, None, prompt)[0] for prompt in prompts]
    process(tiny_gguf, tmp_path, long, head_tokens=head)
    restored = [process(tiny_gguf, tmp_path, prompt, head_tokens=head)[0] for prompt in prompts]
    assert [reply.ids for reply in restored] == [reply.ids for reply in anew]
    assert len(long) > 1500
    assert [reply.cached for reply in restored] == [len(long) - 1, len(long) - 1, head]


def _conversation(requests: list[str]) -> list[int]:
    """A prompt of the embedded model in which every request but the last was answered."""
    messages = [
        Message.from_role_and_content(Role.SYSTEM, SystemContent.new()),
        Message.from_role_and_content(Role.DEVELOPER, "Answer in a short sentence. " * 20),
    ]
    for request in requests:
        messages.append(Message.from_role_and_content(Role.USER, request))
        answer = Message.from_role_and_content(Role.ASSISTANT, f"You asked: {request}")
        messages.append(answer.with_channel("final"))
    return load_encoding(vocabulary.ranks).render_conversation_for_completion(
        Conversation.from_messages(messages[:-1]), Role.ASSISTANT
    )


def test_conversation_goes_on_in_later_processes(gguf: Path, tmp_path: Path) -> None:
    prompt, fresh = IDS[:800], None
    for _ in range(4):
        (reply,) = process(gguf, tmp_path, prompt)
        (fresh,) = process(gguf, None, prompt)
        assert same(reply, fresh)
        prompt = [*prompt, *reply.ids, *OTHER[:40]]
    assert reply.cached == len(prompt) - 40 - 24 - 41, "up to the prompt before, and its end"
    tails = [path for path in segments(tmp_path) if path.stat().st_size]
    assert len(tails) == 2, "what a longer segment has too is removed"


def test_private_request_leaves_its_head_alone(gguf: Path, tmp_path: Path) -> None:
    process(gguf, tmp_path, IDS[:1500], private=True)
    (same,) = process(gguf, tmp_path, IDS[:1500], private=True)
    assert same.cached == HEAD
    process(gguf, tmp_path, OTHER[:1500], private=True, head_tokens=0)
    assert len(segments(tmp_path)) == 2, "the head's"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("where", ["header", "state", "end", "cut", "empty"])
def test_damaged_segment_is_ignored(
    gguf: Path, tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    process(gguf, tmp_path, IDS[:1500])
    (anew,) = process(gguf, None, IDS[:1500])
    path = next(path for path in segments(tmp_path) if path.name.startswith("0" * 24))
    content = bytearray(path.read_bytes())
    match where:
        case "header":
            content[40] ^= 1
        case "state":
            content[len(content) // 2] ^= 1
        case "end":
            content[-1] ^= 1
        case "cut":
            del content[-1000:]
        case "empty":
            content.clear()
    path.write_bytes(content)
    (restored,) = process(gguf, tmp_path, IDS[:1500])
    assert same(restored, anew) and restored.cached == 0
    assert "is damaged" in caplog.text
    (again,) = process(gguf, tmp_path, IDS[:1500])
    assert same(again, anew) and again.cached == 1499, "it was written anew"


def test_folder_that_cannot_be_written_is_no_failure(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (reply,) = process(gguf, tmp_path / "file", IDS[:1500])
    assert len(reply.ids) == 24


@pytest.mark.long
def test_restore_beside_a_stream_changes_neither(gguf: Path, tmp_path: Path) -> None:
    process(gguf, tmp_path, IDS[:2900], max_tokens=0)
    (anew,) = process(gguf, None, IDS[:2900])
    (alone,) = process(gguf, None, OTHER[:700], max_tokens=200)

    async def both() -> list[Reply]:
        engine = LlamaEngine(
            gguf,
            placement=Placement(4096),
            threads=ThreadCounts(1, 1),
            disk_cache=DiskCacheOptions(tmp_path),
        )
        await engine.load()
        try:
            return list(
                await asyncio.gather(
                    generate(engine, OTHER[:700], max_tokens=200), generate(engine, IDS[:2900])
                )
            )
        finally:
            await engine.close()

    stream, restored = asyncio.run(both())
    assert same(restored, anew) and restored.cached == 2899
    assert same(stream, alone)


def test_full_kv_cache_makes_room_for_what_is_restored(gguf: Path, tmp_path: Path) -> None:
    process(gguf, tmp_path, IDS[:2500], max_tokens=0)
    (anew,) = process(gguf, None, IDS[:2500])
    _, restored = process(gguf, tmp_path, OTHER[:2500], IDS[:2500])
    assert same(restored, anew) and restored.cached == 2499


def test_cancelled_restore_leaves_nothing_wrong(gguf: Path, tmp_path: Path) -> None:
    process(gguf, tmp_path, IDS[:2900], max_tokens=0)
    (anew,) = process(gguf, None, IDS[:2000] + OTHER[:100])

    async def run() -> Reply:
        engine = LlamaEngine(
            gguf,
            placement=Placement(4096),
            threads=ThreadCounts(1, 1),
            disk_cache=DiskCacheOptions(tmp_path),
        )
        await engine.load()
        try:
            for _ in range(5):
                generation = engine.generate(Request(IDS[:2900], sampling=Sampling(temperature=0)))
                async for _event in generation:
                    generation.cancel()
            return await generate(engine, IDS[:2000] + OTHER[:100])
        finally:
            await engine.close()

    assert same(asyncio.run(run()), anew)


def test_other_file_or_layout_has_a_folder_of_its_own(gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(gguf.read_bytes())
    names = [
        disk_cache.fingerprint(gguf, Placement(), "1"),
        disk_cache.fingerprint(copy, Placement(), "1"),
        disk_cache.fingerprint(gguf, Placement(), "2"),
        disk_cache.fingerprint(gguf, Placement(kv_type="q8_0"), "1"),
    ]
    assert len(set(names)) == 4
    assert disk_cache.fingerprint(gguf, Placement(1000, sequences=1), "1") == names[0]


def write(cache: DiskCache, ids: Sequence[int]) -> None:
    for segment in list(cache.missing(ids)):
        cache.write(segment, memoryview(bytes(1000)), {})
    cache.flush(10)


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    cache = DiskCache(folder, 8000)
    for start in range(4):
        write(cache, IDS[start : start + 100])
    size = segments(tmp_path)[0].stat().st_size
    cache.max_bytes = size * 4
    assert cache.find([*IDS[:100], 1], windows=False, longer_than=63), "is used"
    write(cache, IDS[4:104])
    found = [
        bool(cache.find([*IDS[start : start + 100], 1], windows=False, longer_than=63))
        for start in range(5)
    ]
    assert found == [True, False, True, True, True]


def test_written_files_are_private(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "model", 10**6)
    write(cache, IDS[: SEGMENT_TOKENS + 100])
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o700
    paths = segments(tmp_path)
    assert len(paths) == 2 and all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert all(path.suffix == ".kv" for path in paths), "nothing is left behind"
    assert disk_cache.clear(tmp_path) > 2000 and segments(tmp_path) == []
    assert disk_cache.clear(tmp_path) == 0


def test_failed_write_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "model"
    folder.write_text("")  # a file in the folder's place
    cache = DiskCache(folder, 10**6)
    write(cache, IDS[:100])
    assert "could not be written" in caplog.text
    folder.unlink()
    assert [type(one) for one in cache.missing(IDS[:100])] == [MissingSegment]
    write(cache, IDS[:100])
    assert len(segments(tmp_path)) == 1


def test_unfinished_restore_is_nobodys_prefix(gguf: Path, tmp_path: Path) -> None:
    """Its window is overwritten by what others compute meanwhile."""
    process(gguf, tmp_path, IDS[:2900], max_tokens=0)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    model = LlamaModel(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    cache = PrefixCache(model, 4, DiskCache(folder, 10**9))
    first = cache.acquire(IDS[:600]).sequence
    assert model.decode([BatchSpan(first.seq_id, IDS[:500], 0)]) == "done"
    first.ids += IDS[:500]
    stored = cache.stored(IDS[:2900], 500)
    assert stored is not None and stored.length == 2899
    restoring = first.restore(stored)
    assert next(restoring)
    assert cache.reusable(IDS[:900]) == 0 and first.checkpoints == {}
    assert all(restoring) and len(first.ids) == 2899
    assert cache.reusable(IDS[:2900]) == 2899
    model.close()


def test_other_families_have_a_folder_for_each_context(plain: Path) -> None:
    """Models with longrope have other factors for longer contexts."""
    names = {disk_cache.fingerprint(plain, Placement(context), "1") for context in (2048, 4096)}
    assert len(names) == 2


@pytest.mark.parametrize("method", ["find", "missing"])
def test_folder_that_cannot_be_read_ends_no_generation(
    gguf: Path,
    tmp_path: Path,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(DiskCache, method, fail)
    first, second = process(gguf, tmp_path, IDS[:1500], IDS[:1500] + OTHER[:100])
    assert len(first.ids) == len(second.ids) == 24 and second.cached == 1500
    assert "the prefix cache on disk is not used" in caplog.text


def test_cleared_cache_stays_empty(gguf: Path, tmp_path: Path) -> None:
    """What was read before it was cleared may be of a conversation that was deleted."""

    async def run() -> None:
        disk = DiskCacheOptions(tmp_path, 10**9)
        engine = LlamaEngine(gguf, placement=Placement(4096), disk_cache=disk)
        await engine.load()
        await generate(engine, IDS[:1500])
        disk_cache.clear(tmp_path)
        await engine.close()

    process(gguf, tmp_path, OTHER[:700])
    asyncio.run(run())
    assert segments(tmp_path) == []
    process(gguf, tmp_path, OTHER[:700])
    assert segments(tmp_path)


def test_clear_follows_a_link_to_another_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "prefixes").symlink_to(tmp_path / "disk")
    write(DiskCache(tmp_path / "prefixes" / "model", 10**6), IDS[:100])
    assert disk_cache.clear(tmp_path / "prefixes") > 1000
    assert segments(tmp_path / "disk") == [] and (tmp_path / "prefixes").is_symlink()


@pytest.mark.long
def test_checkpoints_of_a_restored_prefix_are_limited(gguf: Path, tmp_path: Path) -> None:
    prompts = [IDS[:length] for length in range(100, 2900, 60)]
    process(gguf, tmp_path, *prompts, max_tokens=0)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    model = LlamaModel(gguf, Placement(4096), lambda done: True)
    cache = PrefixCache(model, 4, DiskCache(folder, 10**9))
    sequence = cache.acquire(IDS[:2900]).sequence
    stored = cache.stored(IDS[:2900], 0)
    assert stored is not None and all(sequence.restore(stored))
    assert len(sequence.checkpoints) <= MAX_CHECKPOINTS
    assert len(segments(tmp_path)) == -(-len(sequence.ids) // SEGMENT_TOKENS)
    model.close()


def test_what_a_chain_begins_with_goes_last(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "model", 10**6)
    write(cache, IDS[:1500])
    size = segments(tmp_path)[0].stat().st_size
    assert cache.find(IDS[:1501], windows=False, longer_than=63)
    cache.max_bytes = size * 3
    write(cache, OTHER[:100])
    found = cache.find(IDS[:1501], windows=False, longer_than=63)
    assert found is not None and found.length == 2 * SEGMENT_TOKENS


def test_file_whose_size_is_nonsense_is_ignored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "model", 10**6)
    write(cache, IDS[:100])
    (path,) = segments(tmp_path)
    path.write_bytes(b"agent-kv 1 00000000 " + b"9" * 30 + b"\n")
    assert cache.find(IDS[:101], windows=False, longer_than=63) is None and not path.exists()
