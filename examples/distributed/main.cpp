// Training in several processes: the batch of one rank is bad in one step, and all ranks skip that step together.
//
//   demo_distributed [RANKS]
//
// It starts the ranks itself (4 by default). Ranks of a real job are started on their machines, each with its number
// and the address of a store that all reach, such as c10d::TCPStore.
#include <torch/torch.h>
#include <triage/triage.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr int steps = 20, bad_step = 5, bad_rank = 2;

const char* const repair_lua = R"(
return policy {
  name = "repair", inputs = {"z"}, outputs = {"z", "f"},
  run = function(z)
    local f = flag_nan_and_inf(z, "batch")
    return fix(z, f, "batch"), f
  end,
})";

using Backend = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

Backend connect(const std::string& file, int rank, int count) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::seconds(30);  // of every operation: how long a dead rank can hold up the others
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(file, count), rank, count,
                                                     options);
}

torch::Tensor next_batch(int rank, int step) {
  torch::Tensor x = torch::randn({16, 4});
  if (rank == bad_rank && step == bad_step) x[3][1] = std::nan("");
  return x;
}

/// The mean of the gradients of all ranks. It is a collective operation, which a rank that skipped alone would leave
/// out.
void average_gradients(torch::nn::Linear& model, const Backend& backend) {
  for (torch::Tensor& parameter : model->parameters()) {
    std::vector<at::Tensor> gradients{parameter.grad()};
    backend->allreduce(gradients)->wait();
    gradients[0].div_(backend->getSize());
  }
}

void train(const Backend& backend) {
  triage::Group ranks(backend);
  triage::Runtime runtime;
  const triage::Policy repair = runtime.load_source(repair_lua, "repair.lua");
  triage::check_same(repair, ranks);

  torch::manual_seed(1);  // the same weights on all ranks
  torch::nn::Linear model(4, 1);
  torch::manual_seed(100 + ranks.rank());  // and other data
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  triage::ErrorReport seen;
  int skipped = 0;
  for (int step = 0; step < steps; ++step) {
    ranks.set_step(step);
    const auto [x, f] = repair.run<2>({next_batch(ranks.rank(), step)});
    seen += triage::report_of(f);
    if (triage::agree(triage::err::is_err(f), ranks)) {
      ++skipped;
      continue;  // on every rank
    }
    optimizer.zero_grad();
    torch::mse_loss(model->forward(x), x.sum(1, true)).backward();
    average_gradients(model, backend);
    optimizer.step();
  }

  const triage::ErrorReport all = triage::reduce(seen, ranks);
  const double weight = model->weight.sum().item<double>();
  std::vector<at::Tensor> sum{torch::tensor({weight}, torch::kDouble)};
  backend->allreduce(sum)->wait();
  const bool differs = std::abs(sum[0].item<double>() - ranks.size() * weight) > 1e-6;
  const bool some_differ = triage::agree(differs, ranks);
  if (ranks.rank() != 0) return;
  std::printf("%s\n", all.text().c_str());
  std::printf("skipped %d of %d steps, on all %d ranks; the weights are %s\n", skipped, steps, ranks.size(),
              some_differ ? "different" : "the same");
}

int run_rank(const std::string& file, int rank, int count) {
  try {
    std::signal(SIGPIPE, SIG_IGN);  // or a rank that ends could end the others, before they get an error
    at::set_num_threads(1);
    train(connect(file, rank, count));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 4;
  if (count < 1 || count > 64) {
    std::fprintf(stderr, "demo_distributed: expected a number of ranks from 1 to 64, got '%s'\n", argv[1]);
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "demo-distributed-XXXXXX").string();
  if (!::mkdtemp(folder.data())) {
    std::fprintf(stderr, "demo_distributed: cannot make a folder for the ranks to meet: %s\n", folder.c_str());
    return 1;
  }
  std::vector<pid_t> processes;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t process = ::fork();  // before anything here has started a thread
    if (process == 0) return run_rank(folder + "/store", rank, count);
    processes.push_back(process);
  }
  bool fine = true;
  for (const pid_t process : processes) {
    int status = 1;
    fine = process > 0 && ::waitpid(process, &status, 0) == process && status == 0 && fine;
  }
  std::filesystem::remove_all(folder);
  return fine ? 0 : 1;
}
