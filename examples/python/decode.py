"""Four requests decode together. One of them breaks; the policy over the logits is changed on disk while they run.

    python3 examples/python/decode.py            a small GPT-2 of Hugging Face made from a config, where transformers is installed
    python3 examples/python/decode.py --plain    a small model of torch alone

Nothing is downloaded: weights are random.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import triage

POLICIES = Path(__file__).parent / "policies"
VOCABULARY, END, STEPS, BROKEN = 64, 1, 12, 2


Model = Callable[[torch.Tensor], torch.Tensor]  # tokens (requests, length) to logits (requests, length, vocabulary)


def hugging_face_model() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=END, eos_token_id=END)
    model = GPT2LMHeadModel(config).eval()
    return lambda tokens: model(tokens).logits


def plain_model() -> Model:
    embed, gru, head = torch.nn.Embedding(VOCABULARY, 32), torch.nn.GRU(32, 32, batch_first=True), torch.nn.Linear(32, VOCABULARY)
    return lambda tokens: head(gru(embed(tokens))[0])


def decode(model: Model, policy: triage.Policy, broken: bool, at_step: Callable[[int], None] = lambda step: None) -> list[list[int]]:
    """Greedy decoding; a request ends with the end token. From step 3 on, the logits of one request are NaN."""
    tokens = torch.tensor([[5], [17], [29], [41]])
    ended = torch.zeros(len(tokens), dtype=torch.bool)
    for step in range(STEPS):
        at_step(step)
        logits = model(tokens)[:, -1]
        logits[:, END] = -100.0  # the weights are random: only the policy ends a request
        if broken and step >= 3:
            logits[BROKEN] = float("nan")
        logits, f = policy(logits)
        if triage.has_err(f):
            entry = triage.flags.unpack(f, BROKEN)[0]
            print(f"step {step:2}: version {policy.version.number}, request {BROKEN}: {entry.code_name} at {entry.location_name}")
        chosen = torch.where(ended, END, logits.argmax(-1))
        ended |= chosen == END
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
    return tokens.tolist()


@torch.no_grad()
def main(plain: bool) -> None:
    torch.manual_seed(0)
    model = plain_model() if plain else hugging_face_model()
    folder = Path(tempfile.mkdtemp())
    file = folder / "logits.lua"
    shutil.copy(POLICIES / "logits.lua", file)

    policy = triage.load(file)
    with triage.watch(folder) as watch:

        def change_the_policy(step: int) -> None:
            if step == 7:
                shutil.copy(POLICIES / "end_bad_rows.lua", file)
                event = watch.wait(60)
                print(f"step  7: {event.kind} {Path(event.path).name}: version {event.version}")

        broken = decode(model, policy, broken=True, at_step=change_the_policy)
    whole = decode(model, policy, broken=False)

    print(f"request {BROKEN}: {broken[BROKEN]}")
    others = [i for i in range(len(whole)) if i != BROKEN]
    same = all(broken[i] == whole[i] for i in others)
    print(f"requests {others}: {'the same tokens as' if same else 'OTHER TOKENS THAN'} without the broken one")
    statistics = policy.statistics()
    print(f"{statistics['calls']} calls, {statistics['flagged']} of {statistics['samples']} rows flagged, {statistics['repaired']} repaired")
    shutil.rmtree(folder)


if __name__ == "__main__":
    try:
        import transformers  # noqa: F401

        there = True
    except ImportError:
        there = False
    main(plain="--plain" in sys.argv or not there)
