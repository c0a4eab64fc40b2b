"""Messages through logging, and decisions of child processes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import torch
from conftest import bad_batch

import triage

FLAGS = 'return function(z) local f = flag_nan_and_inf(z, "logits") return fix(z, f, "logits") end'


def test_messages_are_records_of_logging(caplog):
    policy = triage.load_source(FLAGS, "told.lua")
    with caplog.at_level(logging.INFO, "triage"):
        assert policy.replace("return function(z) return z + end") == "refused"
        assert policy.replace(FLAGS + " -- newer") == "swapped"
    levels = {record.levelname for record in caplog.records}
    texts = [record.getMessage() for record in caplog.records]
    assert "INFO" in levels and levels & {"WARNING", "ERROR"}
    assert any("version 2 is live" in text for text in texts)
    assert all(record.name == "triage" and isinstance(record.triage, dict) for record in caplog.records)
    caplog.clear()
    with caplog.at_level(logging.CRITICAL, "triage"):
        policy.replace(FLAGS + " -- newest")
    assert not caplog.records


def test_threads_report_at_once(caplog):
    def work(number):
        policy = triage.load_source(FLAGS, f"thread{number}.lua")
        for version in range(5):
            policy.replace(FLAGS + f" -- {version}")

    with caplog.at_level(logging.INFO, "triage"):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum("is live" in record.getMessage() for record in caplog.records) == 20


def test_a_program_that_ends_while_the_library_works(tmp_path):
    (tmp_path / "a.lua").write_text(FLAGS)
    program = (
        "import os, threading, torch, triage\n"
        f"policy = triage.load({str(tmp_path / 'a.lua')!r})\n"
        f"watch = triage.watch({str(tmp_path)!r}, debounce=0)\n"
        "def edit():\n"
        "    for k in range(1000):\n"
        f"        with open({str(tmp_path / 'next')!r}, 'w') as file: file.write({FLAGS!r} + f' -- {{k}}')\n"
        f"        os.replace({str(tmp_path / 'next')!r}, {str(tmp_path / 'a.lua')!r})\n"
        "threading.Thread(target=edit, daemon=True).start()\n"
        "for k in range(50): policy(torch.zeros(2, 2))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines() if '"event"' not in line]


def test_samples_have_names_in_the_log(tmp_path):
    file = tmp_path / "decisions.jsonl"
    runtime = triage.Runtime(decision_log=file)
    policy = runtime.load_source(FLAGS, "told.lua")
    policy.run([bad_batch(4)], sample_ids=["a", "b", "c", "d"])
    runtime.flush()
    assert [one["sample_id"] for one in lines_of(file)[0]["samples"]] == ["c"]
    with pytest.raises(triage.InputError, match="2 names for a batch of 4 samples"):
        policy.run([bad_batch(4)], sample_ids=["a", "b"])
    with pytest.raises(triage.InputTypeError, match="`sample_ids` is a list of texts"):
        policy.run([bad_batch(4)], sample_ids="abcd")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_decisions_of_a_forked_child_are_on_disk_when_it_ends(tmp_path):
    file = tmp_path / "decisions.jsonl"
    runtime = triage.Runtime(decision_log=file)
    policy = runtime.load_source(FLAGS, "told.lua")
    policy(bad_batch())
    runtime.flush()
    assert len(lines_of(file)) == 1
    child = os.fork()
    if child == 0:
        for _ in range(300):
            policy(bad_batch())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    policy(bad_batch())
    runtime.flush()
    assert len(lines_of(file)) == 302


class Rows(torch.utils.data.Dataset):
    def __init__(self, policy):
        self.policy = policy

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.policy(bad_batch())[0]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_decisions_of_the_workers_of_a_data_loader(tmp_path, start):
    file = tmp_path / "decisions.jsonl"
    policy = triage.Runtime(decision_log=file).load_source(FLAGS, "told.lua")
    loader = torch.utils.data.DataLoader(Rows(policy), batch_size=4, num_workers=2, multiprocessing_context=start)
    assert sum(len(batch) for batch in loader) == 40
    assert len(lines_of(file)) == 40
