"""Functions and tensors of Python for policies."""

import contextlib
import gc
import multiprocessing
import threading
import time

import numpy
import pytest
import torch
import triage

CALLS = "return function(z) return host(z) + 1 end"


@pytest.fixture
def runtime():
    with triage.Runtime() as made:
        yield made


@pytest.mark.parametrize("batch", [0, 1, 2, 31, 32, 33])
def test_a_function_is_called_between_graphs(runtime, batch):
    seen = []
    runtime.define("host", lambda z: seen.append(z.shape[0]) or z * 2)
    policy = runtime.load_source(CALLS)
    for _ in range(3):
        assert policy(torch.full((batch, 1), 3.0)).tolist() == [[7.0]] * batch
    assert seen[-3:] == [batch] * 3


def test_a_pure_function_is_a_node_of_the_graph(runtime):
    runtime.define("host", lambda z: (z.sum(1), z * 2), pure=True, shapes=lambda z: (z.sum(1), z))
    policy = runtime.load_source("return function(z) local s, w = host(z) return w + s:unsqueeze(1) end")
    for batch in (2, 5):
        assert policy(torch.ones(batch, 3)).tolist() == [[5.0] * 3] * batch
    assert policy.graph_breaks() == [] and len(policy.graphs()) == 1


def test_gradients_go_through_a_function(runtime):
    runtime.define("host", lambda z: z * z)
    policy = runtime.load_source(CALLS)
    z = torch.tensor([[3.0]], requires_grad=True)
    policy(z).sum().backward()
    assert z.grad.item() == 6.0


def test_a_model_as_a_function(runtime):
    model = torch.nn.Linear(2, 2)
    runtime.define("host", torch.no_grad()(model))
    policy = runtime.load_source(CALLS)
    z = torch.rand(3, 2)
    assert torch.equal(policy(z), model(z).detach() + 1)


def test_errors_of_a_function_name_it_and_the_line(runtime):
    def fails(z):
        raise KeyError("no such user")

    runtime.define("host", fails)
    runtime.define("wrong", lambda z: 7)
    with pytest.raises(triage.PolicyError, match="no such user") as failed:
        runtime.load_source(CALLS)(torch.ones(1, 1))
    assert failed.value.line == 1 and isinstance(failed.value.__cause__, KeyError)
    assert str(failed.value).splitlines()[0] == "policy.lua:1: KeyError: 'no such user'" and "At:" not in str(failed.value)
    with pytest.raises(triage.PolicyError, match="the function wrong returns a tensor, or a list or tuple of tensors; got int 7"):
        runtime.load_source("return function(z) return wrong(z) end")(torch.ones(1, 1))
    with pytest.raises(triage.InputTypeError, match="define: `function` is a function of tensors; got int 7"):
        runtime.define("x", 7)
    with pytest.raises(triage.InputError, match="pure"):
        runtime.define("x", fails, shapes=fails)
    with pytest.raises(triage.InputError):
        runtime.define("", fails)


@pytest.mark.parametrize("on_error", ["raise", "pass_through"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_reaches_the_caller(on_error, interrupt):
    def stop(z):
        raise interrupt

    with triage.Runtime(on_error=on_error) as runtime:
        runtime.define("host", stop)
        policy = runtime.load_source(CALLS)
        with pytest.raises(interrupt):
            policy(torch.ones(1))
        with pytest.raises(interrupt):
            policy.run([torch.ones(1)], info={})
        assert triage.load_source("return function(z) return z end")(torch.ones(1)).item() == 1.0


def test_what_is_wrong_with_the_results_of_a_function_is_said(runtime):
    runtime.define("host", lambda z: (z, None))
    with pytest.raises(triage.PolicyError, match="the function host returns tensors; value 2 of 2 is None"):
        runtime.load_source(CALLS)(torch.ones(1))


def test_a_compiled_policy_with_a_function_says_what_it_needs(runtime):
    runtime.define("host", lambda z: z * 2)
    policy = runtime.load_source(CALLS)
    with pytest.raises(Exception, match="define it as pure, or declare the types of the policy's outputs"):
        torch.compile(lambda x: policy(x), backend="aot_eager", fullgraph=True)(torch.ones(3, 1))


def test_the_last_definition_holds_for_policies_that_come_later(runtime):
    runtime.define("host", lambda z: z)
    first = runtime.load_source(CALLS)
    runtime.define("host", lambda z: z * 10)
    assert (first(torch.ones(1)).item(), runtime.load_source(CALLS)(torch.ones(1)).item()) == (2.0, 11.0)


def test_a_policy_keeps_its_functions(runtime):
    policy = triage.Runtime()
    policy.define("host", lambda z: z * 2)
    policy = policy.load_source(CALLS)
    gc.collect()
    assert policy(torch.ones(1)).item() == 3.0


def test_many_threads_call_it(runtime):
    runtime.define("host", lambda z: z * 2)
    policy, wrong = runtime.load_source(CALLS), []

    def work():
        for i in range(200):
            if policy(torch.full((1,), float(i))).item() != 2.0 * i + 1:
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_reload_tries_a_pure_function_on_the_thread_that_watches(tmp_path, runtime):
    file = tmp_path / "policy.lua"
    file.write_text(CALLS)
    runtime.define("host", lambda z: z * 2, pure=True)
    policy = runtime.load(file)
    assert policy(torch.ones(1)).item() == 3.0
    with runtime.watch(tmp_path) as watch:
        file.write_text(CALLS.replace("+ 1", "+ 2"))
        assert watch.wait(60).kind == "reloaded"
    assert policy(torch.ones(1)).item() == 4.0


def test_a_tensor_is_read_by_each_call(runtime):
    limit = torch.tensor([10.0])
    runtime.define_tensor("limit", limit)
    scale = numpy.array([2.0], dtype="float32")
    runtime.define_tensor("scale", scale)
    policy = runtime.load_source("return function(z) return z * scale + limit end")
    assert policy(torch.ones(2)).tolist() == [12.0, 12.0]
    limit.fill_(20.0)
    scale[0] = 3.0
    assert policy(torch.ones(2)).tolist() == [23.0, 23.0]
    with pytest.raises(triage.InputTypeError, match="define_tensor: `tensor` is a tensor or a NumPy array"):
        runtime.define_tensor("x", 7)


def call_in_child(policy):
    return policy(torch.ones(1)).item()


def test_a_forked_child_has_the_functions(tmp_path):
    file = tmp_path / "child.lua"
    file.write_text(CALLS)
    runtime = triage.Runtime()
    runtime.define("host", lambda z: z * 5)
    policy = runtime.load(file)
    assert policy(torch.ones(1)).item() == 6.0
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(call_in_child, (policy,)) == 6.0


def test_a_forked_child_has_for_each_policy_the_functions_that_it_was_loaded_with(tmp_path):
    file = tmp_path / "child.lua"
    file.write_text(CALLS)
    runtime = triage.Runtime()
    runtime.define("host", lambda z: z * 5)
    first = runtime.load(file)
    runtime.define("host", lambda z: z * 7)
    second = runtime.load(file, key="second of the child")
    for policies in ((first, second), (second, first)):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert [pool.apply(call_in_child, (policy,)) for policy in policies] == [6.0 if each is first else 8.0 for each in policies]


def test_a_function_may_use_its_runtime_while_that_is_closed(tmp_path):
    file = tmp_path / "policy.lua"
    file.write_text(CALLS)
    runtime = triage.Runtime()
    asked = []

    def host(z):
        with contextlib.suppress(triage.InputError):  # of a closed runtime
            asked.append(len(runtime.metrics_text()))
        return z

    runtime.define("host", host, pure=True)
    policy = runtime.load(file)
    policy(torch.ones(1))
    runtime.watch(tmp_path)
    file.write_text(CALLS.replace("+ 1", "+ 2"))
    time.sleep(0.06)  # about when the watch reloads
    runtime.close()
    assert policy(torch.ones(1)).item() >= 1.0
