// `triage exec --ranks`: scripts that train in several processes.
#include "tests/cli/program.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

Ran run_triage(const std::vector<std::string>& arguments) { return triage_program(TemporaryFolder(), arguments); }

Ran exec(const std::string& code, const std::string& ranks = "2") {
  return run_triage({"exec", "--ranks", ranks, "--timeout", "20", "-e", code});
}

/// A port of this machine that nobody listened at a moment ago.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ::ntohs(address.sin_port);
}

}  // namespace

TEST_CASE("examples/training/ranks.lua leaves out the same steps in all processes, as the docs show") {
  const std::string script = triage::test::source_dir() + "/examples/training/ranks.lua";
  const Ran alone = run_triage({"exec", script}), four = run_triage({"exec", "--ranks", "4", script});
  CHECK(alone.out ==
        "320 samples, 1 with errors\n"
        "left out: 1 bad batch, 1 overflow; the scale is 512; the weights are the same\n");
  CHECK(four.out ==
        "1280 samples, 1 with errors\n"
        "left out: 1 bad batch, 1 overflow; the scale is 512; the weights are the same\n");
  CHECK(four.status == 0);
  const std::string docs = read_bytes(triage::test::source_dir() + "/docs/distributed.md");
  CHECK(has(docs, "$ triage exec --ranks 4 examples/training/ranks.lua\n" + four.out));
}

TEST_CASE("a script has dist without other processes, too") {
  CHECK(run_triage({"exec", "-e",
                    "print(dist.rank():item(), dist.world_size():item(), dist.agree(torch.tensor({true})):item(), "
                    "dist.all_reduce(torch.ones({2})))"})
            .out == "0\t1\ttrue\ttensor([1., 1.])\n");
  CHECK(has(run_triage({"exec", "-e", "dist.agre()"}).err, "dist has no 'agre'; did you mean 'agree'?"));
}

TEST_CASE("dist.all_reduce adds tensors of every dtype of numbers, and gives new ones") {
  const Ran ran = exec(R"(
    local x = torch.ones({2}, {requires_grad = true})
    local sums = {dist.all_reduce(x, torch.tensor({1, 2}), torch.ones({1}):to(torch.bfloat16), torch.ones({}):double(),
                                  torch.zeros({0, 3}), torch.ones({2, 2}):t():half())}
    assert(not sums[1].requires_grad and x:sum():item() == 2)
    assert(sums[5].shape == {0, 3} and sums[6].dtype == torch.float16)
    if dist.rank():item() == 0 then
      print(sums[1], sums[2], sums[3], sums[4], sums[6]:sum():item())
    end)");
  CHECK(ran.err == "");
  CHECK(ran.out ==
        "tensor([2., 2.])\ttensor([2, 4])\ttensor([2.], dtype=torch.bfloat16)\ttensor(2., dtype=torch.float64)\t8.0\n");
}

TEST_CASE(
    "tensors that differ between processes, or have no sum, are an error in all of them, and the next call works") {
  const Ran ran = exec(R"(
    local first = dist.rank():item() == 0
    local _, differ = pcall(dist.all_reduce, torch.ones({first and 2 or 3}))
    local _, wrong = pcall(dist.all_reduce, torch.ones({2}, {dtype = first and torch.bool or torch.float32}))
    local _, none = pcall(dist.all_reduce)
    local all = dist.all_reduce(torch.ones({1}))
    if not first then print(differ, wrong, none, all) end)");
  CAPTURE(ran.out);
  CHECK(has(ran.out,
            "all_reduce: rank 1 of 2: the ranks give different tensors: rank 0 gives Float [2]; rank 1 gives "
            "Float [3]"));
  CHECK(has(ran.out, "all_reduce: rank 1 of 2 has no result: the call of rank 0 had a wrong argument"));
  CHECK(has(ran.out, "expected at least one tensor, got none"));
  CHECK(has(ran.out, "tensor([2.])"));
}

TEST_CASE("a call of dist in compiled code is a graph break") {
  const Ran ran =
      run_triage({"exec", "-e",
                  "print(pcall(triage.compile(function(x) return dist.all_reduce(x) end, {fullgraph = true}), "
                  "torch.ones({2})))"});
  CHECK(has(ran.out, "graph break: `dist.all_reduce` is a function of the host"));
}

TEST_CASE("where one process fails, all end, with its status") {
  const Ran failed =
      exec("if dist.rank():item() == 1 then os.exit(7) end while true do dist.agree(torch.tensor({true})) end");
  CHECK(failed.status == 7);
  const Ran killed = exec(
      "if dist.rank():item() == 1 then os.execute('kill -9 $PPID') end torch.ones({1}) "
      "dist.agree(torch.tensor({true}))",
      "3");
  CHECK(killed.status != 0);
  CHECK(has(killed.err, "was ended by signal 9"));
  const Ran raised = exec("error('rank ' .. dist.rank():item())", "1");
  CHECK(raised.status == 1);
  CHECK(has(raised.err, "rank 0"));
}

TEST_CASE("processes that a launcher has started") {
  const TemporaryFolder folder;
  write_bytes(folder / "ranks.lua", R"(
    print(dist.world_size():item(), dist.all_reduce(torch.ones({1})):item(),
      dist.agree(torch.tensor({dist.rank():item() == 1})):item()))");
  const Ran ran = shell(folder, "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo MASTER_PORT=" +
                                    std::to_string(free_port()) +
                                    "\nRANK=0 \"$triage\" exec --ranks env --timeout 30 ranks.lua & "
                                    "RANK=1 \"$triage\" exec --ranks env --timeout 30 ranks.lua; wait");
  CHECK(ran.err == "");
  CHECK(ran.out == "2\t2.0\ttrue\n2\t2.0\ttrue\n");
}

TEST_CASE("wrong uses of --ranks say what was expected") {
  for (const char* number : {"0", "-1", "2x", "1e3", "1025"}) {
    const Ran ran = run_triage({"exec", std::string("--ranks=") + number, "-e", "print(1)"});
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, "--ranks"));
  }
  CHECK(has(run_triage({"exec", "--ranks", "2", "--timeout", "0", "-e", "print(1)"}).err,
            "--timeout: expected seconds from 0.001 to 1000000, got 0"));
  CHECK(has(run_triage({"exec", "--timeout", "3", "-e", "print(1)"}).err, "--timeout requires --ranks"));
  CHECK(run_triage({"exec", "--ranks", "1", "-e", "print(arg[1], arg[2])", "--ranks", "x"}).out == "--ranks\tx\n");
  CHECK(has(
      shell(TemporaryFolder(), "unset WORLD_SIZE; \"$triage\" exec --ranks env -e 'print(1)'").err,
      "--ranks env: the environment variable WORLD_SIZE is missing. A launcher sets RANK, WORLD_SIZE, MASTER_ADDR"));
}
