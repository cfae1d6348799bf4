"""The race: its statistics, its judge, its document."""

import json
import pathlib
import random
import subprocess
import xml.etree.ElementTree

import pytest
import torch

from saccade.bench import __main__ as command
from saccade.bench import bars, host_times, picture, race, shapes, statistics, timers, varlen
from saccade.bench.candidates import Candidate, kernel, ours, rival

ROOT = pathlib.Path(__file__).parents[2]


def race_document(tmp_path, *arguments):
    out = tmp_path / "race.json"
    status = command.main([*arguments, "--budget", "0.01", "--out", str(out), "--svg", str(tmp_path / "race.svg")])
    return status, json.loads(out.read_text())


def test_speedups_are_ratios_of_medians_with_an_interval_around_them():
    rng = random.Random(3)
    slow = [20 + rng.random() for _ in range(41)]
    fast = [x / 2 for x in slow]
    ratio = statistics.speedup(fast, slow, seed=1)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.value == pytest.approx(2)
    assert ratio.high - ratio.low < 1e-9  # drawn together, the common noise cancels
    assert ratio.verdict == "faster"
    assert statistics.speedup(slow, fast, seed=1).verdict == "slower"
    assert statistics.speedup(slow, slow, seed=1).verdict == "same"
    assert statistics.speedup(slow[:3], slow[3:6], seed=1).verdict == "unclear"


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, timers.SYNCHRONIZED_CALLS), (0.003, 1)])
def test_every_call_of_a_synchronized_sample_is_waited_for(monkeypatch, seconds, calls):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(timers.time, "perf_counter", lambda: seconds * events.count("wait"))  # waiting is all it takes

    timer, found = timers.synchronized(Candidate("somebody", lambda: events.append("call")))
    assert found == calls
    events.clear()
    assert timer() == pytest.approx(seconds)
    assert events == ["call", "wait"] * (1 + calls)  # one to warm up


def test_medians_and_means():
    assert statistics.median([3.0, 1.0, 2.0, 10.0]) == 2.5
    low, high = statistics.median_interval([float(x) for x in range(100)], seed=1)
    assert 35 < low < 49.5 < high < 64
    assert statistics.geometric_mean([2.0, 8.0]) == pytest.approx(4)


@pytest.mark.parametrize("text", ["b1 h2 l64 d64 f16", "b2 h4/2 lq3 lk65 d32 f32", "b1 h1 l64 d64 bf16 causal"])
def test_shapes_become_tensors(text):
    shape = shapes.parse(text)
    q, k, v = shape.tensors("cpu", seed=1)
    p = shape.problem
    assert q.shape == (p.batch, p.heads_q, p.len_q, p.dim_qk)
    assert k.shape == (p.batch, p.heads_kv, p.len_kv, p.dim_qk)
    assert v.shape == (p.batch, p.heads_kv, p.len_kv, p.dim_v)
    assert shape.bytes == sum(x.nbytes for x in (q, k, v)) + p.batch * p.heads_q * p.len_q * p.dim_v * q.itemsize
    assert not torch.equal(k, v)


@pytest.mark.parametrize("text", ["b1 h2 l64 d64 f16 softcap=3", "b1 h2 l64 d64 f16 window=3,0", "b1 h2 m64"])
def test_what_sdpa_cannot_say_is_refused(text):
    with pytest.raises(ValueError):
        shapes.parse(text)


@pytest.mark.parametrize("text", ["b1 h3 l65 d64 f16", "b2 h4/2 l33 d32 f32 causal", "b1 h2 l70 d64 bf16 causal"])
def test_the_judge_passes_attention_and_nothing_else(text):
    shape = shapes.parse(text)
    q, k, v = shape.tensors("cpu", seed=5)
    judge = race.Judge(shape, q, k, v, random.Random(1))
    for right in (ours(shape, q, k, v), kernel("cpu_reference", shape, q, k, v), rival("sdpa_math", shape, q, k, v)):
        assert race.checked(right, judge, q)["passed"], right.name
    repeated = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    mean = repeated.float().mean(2, keepdim=True).expand_as(q).to(q.dtype)
    assert not race.checked(Candidate("mean of v", lambda: mean), judge, q)["passed"]
    good = ours(shape, q, k, v).call()
    mistakes = {"nan": good * float("nan"), "rolled heads": good.roll(1, 1), "rolled rows": good.roll(1, 2)}
    for name, wrong in mistakes.items():
        assert not race.checked(Candidate(name, lambda wrong=wrong: wrong), judge, q)["passed"], name


def test_a_race_writes_what_saccade_bench_writes(tmp_path):
    status, document = race_document(
        tmp_path, "b1 h2 l64 d64 f32", "b1 h2 l64 d32 f16 causal", "--device", "cpu", "--kernel", "cpu_blocked",
        "--kernel", "no_such_kernel", "--rival", "sdpa", "--rival", "sdpa_math", "--rival", "flash_attn",
    )  # fmt: skip
    assert status == 0
    assert document["schema"] == "saccade.bench/1"
    assert [shape["shape"] for shape in document["results"]] == ["b1 h2 l64 d64 f32", "b1 h2 l64 d32 f16 causal"]
    for shape in document["results"]:
        rows = {row["kernel"]: row for row in shape["kernels"]}
        assert shape["best_sdpa"] in ("sdpa", "sdpa_math")
        assert "no_such_kernel" in rows["no_such_kernel"]["rejected"]
        assert "time" not in rows["no_such_kernel"]
        for name in ("saccade", "cpu_blocked"):
            assert rows[name]["verified"]["passed"]
            assert rows[name]["time"]["samples"] >= race.MIN_SAMPLES
            assert rows[name]["speedup"]["baseline"] == shape["best_sdpa"]
    xml.etree.ElementTree.parse(tmp_path / "race.svg")
    assert document["totals"]["saccade"]["shapes"] == 2
    cli = ROOT / "build/release/tools/saccade/saccade"
    if cli.exists():
        told = subprocess.run([cli, "report", tmp_path / "race.json"], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        assert "b1 h2 l64 d32 f16 causal" in told.stdout


def test_a_wrong_answer_is_told_and_not_timed(tmp_path, monkeypatch):
    def wrong(shape, q, k, v):
        return Candidate("saccade", lambda: torch.zeros_like(q))

    monkeypatch.setattr(command, "ours", wrong)
    status, document = race_document(tmp_path, "b1 h2 l64 d64 f32", "--device", "cpu", "--rival", "sdpa")
    row = document["results"][0]["kernels"][0]
    assert status == 1
    assert "wrong" in row["not_timed"]
    assert "time" not in row


@pytest.mark.parametrize("bad", [["b1 m2"], ["--cases", "no_such_file"], ["--without-saccade"]])
def test_bad_input_is_refused_with_a_sentence(bad, capsys):
    with pytest.raises(SystemExit):
        command.arguments([*bad, "--device", "cpu"])
    assert "error" in capsys.readouterr().err


def test_pictures_escape_their_texts():
    ratio = {"value": 2.0, "low": 1.9, "high": 2.1, "verdict": "faster"}
    document = {"device": "<cpu>", "results": [{"shape": "a<b", "kernels": [{"kernel": "x&y", "speedup": ratio}]}]}
    assert "a<b" in "".join(xml.etree.ElementTree.fromstring(picture.svg(document, "x&y")).itertext())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_race_on_a_gpu_has_device_and_host_times(tmp_path):
    status, document = race_document(tmp_path, "b1 h8 l128 d64 f16 causal", "--device", "cuda", "--host-times")
    row = document["results"][0]["kernels"][0]
    assert status == 0
    assert row["time"]["timer"] == "device"
    assert row["queued"]["median_us"] > 0
    assert row["synchronized"]["median_us"] >= row["queued"]["median_us"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_packed_sequences_are_checked_and_raced_on_cuda():
    row = varlen.run(varlen.Batch("some", [30, 1, 77], (4, 2), 64, True, [50, 9, 77]), 0.01, 1)
    assert row["saccade"]["relative_l2"] < varlen.TOLERANCE
    assert row["speedup"]["low"] <= row["speedup"]["value"] <= row["speedup"]["high"]


def test_host_times_of_several_runs_have_a_mean_and_an_interval():
    def document(ours):
        rows = [{"kernel": "saccade"}, {"kernel": "sdpa"}]
        for timer in host_times.TIMERS:
            rows[0][timer], rows[1][timer] = {"median_us": ours}, {"median_us": 20.0}
        return {"provenance": {"commit": "x"}, "results": [{"shape": "b1 h8 l512 d64 f16", "kernels": rows}]}

    two, provenance = host_times.put_together([document(9.0), document(10.0)])
    put_together = {"runs": two, "provenance": provenance}
    rows, provenance = host_times.put_together([document(11.0), put_together])
    assert [row["run"] for row in rows] == [1, 2, 3] and len(provenance) == 3
    found = host_times.means(rows)["b1 h8 l512 d64 f16"]["queued"]
    assert (found["runs"], found["mean"], found["least"], found["most"]) == (3, 0.5, 0.45, 0.55)
    assert found["low"] == pytest.approx(0.5 - 1.96 * 0.05 / 3**0.5, abs=1e-3)


def test_flops_of_packed_sequences_are_those_that_the_mask_leaves():
    assert varlen.Batch("one", [3], (2, 1), 8, False, [5]).flops == 4 * 15 * 2 * 8
    assert varlen.Batch("one", [3], (2, 1), 8, True, [5]).flops == 4 * (3 + 4 + 5) * 2 * 8


def test_two_configurations_of_one_kernel_are_two_rows(tmp_path):
    names = ["cpu_blocked", "cpu_blocked:"]
    arguments = [part for name in names for part in ("--kernel", name)]
    _, document = race_document(tmp_path, "b1 h1 l32 d32 f32", "--device", "cpu", "--rival", "sdpa", *arguments)
    rows = [row["kernel"] for row in document["results"][0]["kernels"] if "time" in row]
    assert rows == ["saccade", *names, "sdpa"]


def test_shapes_belong_to_their_bars():
    assert bars.kind("b1 h8 l512 d64 f16 causal") == "mission"
    assert bars.kind("b1 h32/8 lq1 lk4096 d128 f16") == "decode"
    assert bars.kind("b1 h8 lq16 lk4096 d64 f16") == "other queries than keys"
    assert bars.kind("b4 h16 l512 d64 f16") == "short"
    assert bars.kind("b4 h16 l512 d64 f16", most_heads=32) == "long d64"
    assert bars.kind("b1 h32/8 l4096 d128 f16 causal") == "long d128"


def test_the_figures_of_the_documentation_are_those_of_the_evidence():
    evidence = ROOT / "evidence" / "h200"
    document = json.loads((evidence / "anchors.json").read_text())
    peer = json.loads((evidence / "flash_attention_3.json").read_text())["times"]
    text = (ROOT / "docs" / "kernels" / "sm90.md").read_text()
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| ")}

    def check(row, ratios):
        mean = statistics.geometric_mean(list(ratios.values()))
        assert f"{mean:.2f}x" in row, (row, mean)
        assert f"least {min(ratios.values()):.2f}x" in row, (row, min(ratios.values()))

    found = bars.speedups(document)
    check(rows["L <= 2048, at most 64 batch-heads (14)"], found["short"])
    for dim, count in ((64, 6), (128, 9), (256, 2)):
        assert len(found[f"long d{dim}"]) == count
        check(rows[f"long, head dim {dim} ({count})"], found[f"long d{dim}"])
    for ratio in found["mission"].values():
        assert f"{ratio:.2f}x" in rows["mission, full and causal"]
    for ratios in bars.over_peer(document, peer).values():
        check(rows["ratio to cuDNN over FlashAttention-3's ratio to cuDNN"], ratios)
    errors = rows["error against float64 over FlashAttention-2's"]
    assert f"{bars.worst_error(document):.2f}x" in errors

    models = json.loads((evidence / "models.json").read_text())
    assert [result["shape"] for result in models["results"]] == shapes.read_cases(str(ROOT / "cases" / "models.txt"))
    mine = [row for result in models["results"] for row in result["kernels"] if row["kernel"] == "saccade"]
    assert all(row["verified"]["passed"] for row in mine)
    mean = statistics.geometric_mean([row["speedup"]["value"] for row in mine])
    assert f"(`models.json`, {len(mine)} of" in text and f"): {mean:.2f}x in geometric mean. Below" in text
    assert f"({bars.worst_error(models):.2f}x over `models.json`)" in errors

    packed = json.loads((evidence / "varlen.json").read_text())
    ratios = [row["speedup"]["value"] for row in packed["results"]]
    assert len(ratios) == len(varlen.batches(random.Random(1)))
    row = rows["sequences of their own lengths over PyTorch's FlashAttention-2"]
    assert f"{statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x" in row


def test_the_figures_of_sm80_are_those_of_the_evidence():
    document = json.loads((ROOT / "evidence" / "h200" / "anchors.json").read_text())
    text = (ROOT / "docs" / "kernels" / "sm80.md").read_text()
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| ")}
    found = bars.speedups(document, "sdpa_flash", 32, "sm80")
    for ratio in found["mission"].values():
        assert f"{ratio:.2f}x" in rows["mission, full and causal"]
    short = [*found["mission"].values(), *found["short"].values()]
    long = [ratio for kind, shapes in found.items() if kind.startswith("long") for ratio in shapes.values()]
    for name, ratios in (
        ("L <= 2048, at most 32 batch-heads, the mission among them (14)", short),
        ("all other dense shapes (19)", long),
    ):
        assert f"({len(ratios)})" in name
        assert f"{statistics.geometric_mean(ratios):.2f}x; least {min(ratios):.2f}x" in rows[name], ratios
    readme = (ROOT / "README.md").read_text()
    means = [f"{statistics.geometric_mean(ratios):.2f}x" for ratios in (short, long)]
    assert f"{means[0]} in geometric mean over short problems, {means[1]} over all others" in readme
    best = bars.speedups(document)
    means = [f"{statistics.geometric_mean(list(best[f'long d{dim}'].values())):.2f}x" for dim in (64, 128, 256)]
    assert f"{means[0]}, {means[1]} and {means[2]} in geometric mean at head dims 64, 128 and 256" in readme
    error = bars.worst_error(document, kernel="sm80")
    assert f"{error:.2f}x at most" in rows["error against float64 over FlashAttention-2's"]


def test_the_host_times_of_the_documentation_are_those_of_the_evidence():
    document = json.loads((ROOT / "evidence" / "h200" / "host_times.json").read_text())
    assert host_times.means(document["runs"]) == document["mean_ratios"]
    full, causal = document["mean_ratios"].values()
    text = (ROOT / "docs" / "pytorch.md").read_text()
    queued, waited = full["queued"], full["synchronized"]
    assert f"the mean of {queued['runs']} runs on" in text
    assert f"{queued['mean']:.3f} full, with a 95% interval from {queued['low']:.3f} to {queued['high']:.3f}" in text
    assert f"{causal['queued']['mean']:.3f} causal)" in text
    assert f"({waited['mean']:.3f} full, from {waited['low']:.3f} to {waited['high']:.3f}" in text
    waited = causal["synchronized"]
    assert f"{waited['mean']:.3f} causal, from {waited['low']:.3f} to {waited['high']:.3f}" in text
