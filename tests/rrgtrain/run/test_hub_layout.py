"""The hub's own files go through every command, with a smaller tokenizer than the published one."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import constants
from peft import PeftModel
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    AutoTokenizer,
    Qwen2VLImageProcessorPil,
)

from rrgdata.images.read import read_image
from rrgdata.load import load_studies
from rrgpolicy.model.prompt import prompt_text
from rrgreport.run_files import read_metrics
from rrgtrain.cli import main
from rrgtrain.run import export
from rrgtrain.run.export import export_checkpoint
from tests.rrgpolicy.hub import hub_directory, small_hub_directory
from tests.rrgpolicy.model.common import text_directory, tiny_directory
from tests.rrgpolicy.rollout.served import Served
from tests.rrgtrain.common import ALL_STUDIES, phantoms
from tests.rrgtrain.runs import At, command, on_ranks

DATA = ["data.source=iu_xray", f"data.root={phantoms()}", *ALL_STUDIES, "eval.limit=3"]
SMALL = [
    *("policy.prompt=short", "eval.max_new_tokens=10", "eval.bootstrap=20", "eval.samples=1"),
    *("eval.batch=4", "eval.meteor=false", "sft.steps=2", "sft.batch=2", "sft.eval_every=2"),
    *("sft.warmup=0", "sft.lr=0.003", "rl.steps=2", "rl.prompts=2", "rl.group=4", "rl.lr=0.01"),
    *("rl.max_new_tokens=10", "rl.eval_every=2", "checkpoint.steps=1", "select.samples=2"),
    # of no report, so that the start, which is validated too, is not kept in place of the adapter
    *("rl.beta=0", "log.records=0", "eval.best_by=micro_f1_5"),
]
TUNED, ADAPTED = "sft/checkpoints/sft", "rl/checkpoints/editgrpo"


pytestmark = pytest.mark.usefixtures("at_home")


def ran(*words: str, cwd: Path) -> None:
    command(*words, *DATA, *SMALL, cwd=cwd, status=0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SFT from the hub's files, RL of an adapter from there, and an evaluation of each."""
    home = tmp_path_factory.mktemp("hub")
    ran("sft", "--out", "sft", f"policy.path={small_hub_directory()}", cwd=home)
    ran("rl", "--from", TUNED, "--out", "rl", "policy.lora.rank=2", cwd=home)
    ran("eval", "--from", TUNED, "--out", "eval-sft", cwd=home)
    ran("eval", "--from", ADAPTED, "--out", "eval-rl", cwd=home)
    return home


def reports(evaluation: Path) -> dict[str, str]:
    rows = map(json.loads, (evaluation / "predictions.jsonl").open())
    return {row["id"]: row["report"] for row in rows if row["system"] != "constant template"}


def tensors(directory: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in directory.glob("model*.safetensors"):
        found |= load_file(file)
    return found


def decoded(directory: Path, adapter: Path | None = None) -> dict[str, str]:
    """The reports that transformers alone writes with what was exported, by its default."""
    model = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    files = adapter or directory
    tokenizer = AutoTokenizer.from_pretrained(files)
    processor = Qwen2VLImageProcessorPil.from_pretrained(files)
    found = {}
    for study in load_studies("iu_xray", phantoms()).studies["test"][:3]:
        pixels = processor([read_image(i.path) for i in study.images], return_tensors="pt")
        content = [*({"type": "image"} for _ in study.images)]
        content.append({"type": "text", "text": prompt_text(study, style="short")})
        turns = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        for grid in pixels["image_grid_thw"]:
            text = text.replace("<|image_pad|>", "<|x|>" * int(grid.prod() // 4), 1)
        text = text.replace("<|x|>", "<|image_pad|>")
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        seen = (ids == model.config.image_token_id).int()
        out = model.generate(input_ids=ids, mm_token_type_ids=seen, max_new_tokens=10, **pixels)
        found[study.id] = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    return found


def test_what_is_saved_has_the_hubs_names_and_no_penalty(home: Path) -> None:
    published = json.loads((small_hub_directory() / "model.safetensors.index.json").read_text())
    assert tensors(home / TUNED).keys() == published["weight_map"].keys()
    for stage in (TUNED, ADAPTED):
        told = json.loads((home / stage / "generation_config.json").read_text())
        assert (told["repetition_penalty"], told["temperature"], told["do_sample"]) == (1, 1, False)


def as_the_hub(directory: Path) -> dict[str, Any]:
    """What config.json says otherwise than the hub's; transformers 5 reads it as it was saved."""
    told, published = (
        json.loads((d / "config.json").read_text()) for d in (directory, small_hub_directory())
    )
    read = [AutoConfig.from_pretrained(d).to_dict() for d in (directory, small_hub_directory())]
    for config in read:
        parts = (config, config["text_config"], config["vision_config"])
        _ = [part.pop(key, None) for part in parts for key in ("dtype", "_name_or_path")]
    assert read[0] == read[1]
    # more is said of the tower and of rope; the window is not used
    for key in ("vision_config", "rope_scaling"):
        assert published.pop(key).items() <= told.pop(key).items()
    for key in ("transformers_version", "sliding_window"):
        published.pop(key)
    for key in ("additional_special_tokens", "chat_template"):
        own, theirs = (
            json.loads((d / "tokenizer_config.json").read_text())[key]
            for d in (directory, small_hub_directory())
        )
        assert own == theirs
    return {k: told.get(k) for k, v in published.items() if told.get(k) != v}


def test_an_export_decodes_what_the_evaluation_decoded(home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)  # the adapter names its base from here
    out = {name: tmp_path / name for name in ("whole", "half", "merged", "alone")}
    exact = ["--dtype", "fp32"]
    assert main(["export", TUNED, "--out", str(out["whole"]), *exact]) == 0
    assert main(["export", TUNED, "--out", str(out["half"])]) == 0
    assert main(["export", ADAPTED, "--out", str(out["merged"]), "--merge", *exact]) == 0
    assert main(["export", ADAPTED, "--out", str(out["alone"]), *exact]) == 0
    tuned, adapted = reports(home / "eval-sft"), reports(home / "eval-rl")
    assert tuned != adapted and len(tuned) == 3
    assert decoded(out["whole"]) == tuned
    assert decoded(out["merged"]) == adapted
    assert decoded(home / TUNED, out["alone"]) == adapted
    whole, half = tensors(out["whole"]), tensors(out["half"])
    assert whole.keys() == half.keys() == tensors(out["merged"]).keys()
    assert all(torch.equal(half[n], w.bfloat16()) for n, w in whole.items()), "rounded once"
    wanted = {"half": {}, "whole": {"torch_dtype": "float32"}, "merged": {"torch_dtype": "float32"}}
    assert {name: as_the_hub(out[name]) for name in wanted} == wanted
    assert not list(out["alone"].glob("model*")) and len(list(out["alone"].glob("adapter*"))) == 2
    for name, directory in out.items():
        card = (directory / "README.md").read_text()
        front = yaml.safe_load(card.split("---")[1])
        assert front["library_name"] == ("peft" if name == "alone" else "transformers")
        for word in ("Not a medical device", "iu_xray", "micro-F1", "seed: 0", "Apache-2.0"):
            assert word in card, word
        kept = card + (directory / "rrgtrain.json").read_text()
        assert str(home) not in kept and str(phantoms()) not in kept, "no path of this machine"
    # and the trainer reads it with what it remembers
    words = ["eval", "--from", str(out["merged"]), "--out", str(tmp_path / "again")]
    assert main([*words, *DATA, *(w for w in SMALL if "prompt" not in w)]) == 0
    assert reports(tmp_path / "again") == adapted


class Hub(BaseHTTPRequestHandler):
    """Take repositories and commits as the hub does, all files in the commit itself."""

    kept: dict[str, bytes]
    created = b""

    def do_HEAD(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        body, where = self.rfile.read(int(self.headers["Content-Length"])), constants.ENDPOINT
        if self.path.endswith("/repos/create"):
            type(self).created = body
            return self.answer({"url": f"{where}/me/policy"})
        if "/preupload/" in self.path:
            files = [one["path"] for one in json.loads(body)["files"]]
            modes = [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]
            return self.answer({"files": modes})
        if "/commit/" not in self.path:  # a look at the card's head
            return self.answer({"errors": [], "warnings": []})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.kept[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.answer({"commitUrl": f"{where}/me/policy/commit/1", "commitOid": "1"})

    def answer(self, what: dict[str, Any], status: int = 200) -> None:
        text = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else text)

    def log_message(self, *_: object) -> None:
        pass


def test_an_export_is_pushed(tmp_path, monkeypatch, capsys):
    Hub.kept = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("rrgclinical.hub.reach_hub", lambda: None)
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    policy = tiny_directory()
    words = ["export", str(policy), "--out", str(tmp_path / "out"), "--push"]
    assert main([*words, "no/such/name"]) == 2 and not (tmp_path / "out").exists()
    assert main([*words, "me/policy"]) == 0
    files = {p.relative_to(tmp_path / "out").as_posix(): p for p in (tmp_path / "out").rglob("*")}
    assert Hub.kept == {name: path.read_bytes() for name, path in files.items() if path.is_file()}
    assert b"private" in Hub.created and b"false" not in Hub.created
    server.shutdown()
    server.server_close()
    words[3] = str(tmp_path / "again")
    assert main([*words, "me/policy"]) == 2
    assert "is whole, but cannot be pushed to me/policy" in capsys.readouterr().err
    assert (tmp_path / "again" / "README.md").is_file()


def test_an_interrupted_export_and_bad_words_leave_nothing(home, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(home)
    start = str(small_hub_directory())
    (tmp_path / "there").mkdir()
    out = str(tmp_path / "out")
    cases = {
        "holds no config.json; name a checkpoint directory such as": ["rl", "--out", out],
        "no such directory": ["nowhere/at/all", "--out", out],
        "is there already; name a directory that is not": [start, "--out", str(tmp_path / "there")],
        "has no adapter to merge; leave --merge out": [start, "--out", out, "--merge"],
        "which is built for a run": ["tiny", "--out", out],
    }
    for line, words in cases.items():
        assert main(["export", *words]) == 2, words
        (told,) = capsys.readouterr().err.splitlines()
        assert line in told, told

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def of_rust(*_: object) -> None:
        Tokenizer(WordLevel({"a": 0}, unk_token="a")).save("/dev/full")

    for act, status, line in (
        (full, 2, "No space left on device: make room, or name another place; nothing is left"),
        (of_rust, 2, "No space left on device: make room, or name another place; nothing is left"),
        (lambda *_: signal.raise_signal(signal.SIGTERM), 75, "stopped by SIGTERM"),
    ):
        monkeypatch.setattr("rrgpolicy.model.policy.Policy.save_preprocessing", act)
        assert main(["export", start, "--out", out]) == status
        assert line in capsys.readouterr().err
    left = [p.name for p in tmp_path.iterdir() if p.name != "cache"]
    assert left == ["there"], "weights had been written"


def test_a_directory_that_was_made_meanwhile_stays(tmp_path, monkeypatch, capsys):
    """Of two exports to one place the later replaced what the earlier had written."""

    def of_another(*_: object) -> str:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("")
        return ""

    monkeypatch.setattr(export, "model_card", of_another)
    assert main(["export", str(tiny_directory()), "--out", str(tmp_path / "out")]) == 2
    assert "is there already; name a directory that is not" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]


def test_the_card_says_what_is_known(tmp_path: Path) -> None:
    """Of a tiny policy and its drawings, of a model of text alone, and of somebody's checkpoint."""
    known = {"base": "/somewhere/run/init", "data.source": "phantom", "policy.prompt": "short"}
    cards = {}
    for name, source, told in (
        ("tiny", tiny_directory(), known),
        ("text", text_directory(), {"base": "Qwen/Qwen2.5-3B", "data.source": "mimic_cxr"}),
        ("else", tiny_directory(), None),
    ):
        start = tmp_path / name / "checkpoints" / "sft"
        shutil.copytree(source, start)
        if told is not None:
            (start / "rrgtrain.json").write_text(json.dumps(told))
        out = export_checkpoint(str(start), tmp_path / f"{name}-out")
        cards[name] = (out / "README.md").read_text()
        assert str(tmp_path) not in cards[name] and "/somewhere" not in cards[name]
        assert "Not a medical device" in cards[name] and "seed" not in cards[name]
        config = json.loads((out / "config.json").read_text())
        assert "rope_theta" in config and not {"rope_parameters", "text_config"} & config.keys()
    has = {
        "Random weights": ["tiny"],
        "Trained on drawings": ["tiny"],
        "PhysioNet": ["text"],
        "Not known": ["tiny", "text", "else"],
        "frontal": ["tiny", "else"],
        "base_model: Qwen/Qwen2.5-3B": ["text"],
        "pipeline_tag: text-generation": ["text"],
    }
    assert {word: [name for name in cards if word in cards[name]] for word in has} == has


def test_an_export_of_the_published_tokenizer_writes_reports_and_draws(tmp_path: Path) -> None:
    hub = str(tmp_path / "exported")
    assert main(["export", str(hub_directory()), "--out", hub]) == 0
    theirs, ours = (AutoTokenizer.from_pretrained(place) for place in (hub_directory(), hub))
    assert theirs.get_vocab() == ours.get_vocab()
    words = ["--out", str(tmp_path / "reports.jsonl"), *(w for w in SMALL if "select" not in w)]
    study = next(phantoms().rglob("*.png")).parent
    assert main(["generate", hub, str(study), *words]) == 0
    written = (tmp_path / "reports.jsonl").read_text().splitlines()
    assert len(written) == len([*study.glob("*.png")]) > 0
    words = ["--from", hub, "--out", str(tmp_path / "s"), *DATA, *SMALL]
    assert main(["select", *words]) == 0
    assert len((tmp_path / "s" / "sampled.jsonl").read_text().splitlines()) == 8


def test_two_ranks_push_to_a_server_stop_and_go_on(tmp_path: Path) -> None:
    """The masters are sharded; each step's gap says that the server had the weights."""
    with Served(small_hub_directory()) as served:
        engine = ["rollout.engine=vllm_server", f"rollout.url={served.url}", "scale.mode=fsdp2"]
        words = ["rl", "--from", str(small_hub_directory()), "--out", "run", *engine, *DATA, *SMALL]
        at = At("rrgtrain.train.rl:accumulate_gradients", 2)
        words += ["policy.freeze_vision=true"]
        on_ranks(*words, cwd=tmp_path, at=at, rank=0, statuses=[75, 75])
        on_ranks("rl", "--resume", "run", cwd=tmp_path, statuses=[0, 0])
    rows = [r for r in read_metrics(tmp_path / "run/metrics.jsonl") if "sampler/gap_mean" in r]
    assert [r["step"] for r in rows] == [0, 1]
    assert all(r["sampler/gap_mean"] < 1e-4 for r in rows)
    assert (
        tensors(tmp_path / "run/checkpoints/editgrpo").keys()
        == tensors(small_hub_directory()).keys()
    )
