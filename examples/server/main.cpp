// An inference server. A model answers, a policy finds and repairs the bad samples of each batch, and the policy
// changes while it serves: edit the file, or send commands to the admin port.
//
//   demo_server POLICY.lua [--port 8080] [--admin-port 8081] [--log decisions.jsonl] [--capsules DIR] [--cache DIR]
//   ... [--drain 5]
//   curl -d '{"samples": [[1,2,3,4,5,6,7,8], [null,2,3,4,5,6,7,8]]}' localhost:8080/predict
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <vector>

#include "model.h"
#include "server.h"

using nlohmann::json;
using namespace std::chrono_literals;

namespace {

constexpr size_t most_samples = 4096;

struct Request {
  at::Tensor samples;
  std::vector<std::string> ids;  // as many as samples, or none
};

/// A number, or null for NaN, which JSON does not have.
float number_of(const json& value) {
  if (value.is_null()) return std::numeric_limits<float>::quiet_NaN();
  if (!value.is_number())
    throw std::invalid_argument(std::string("a sample is a list of numbers (null: NaN), got ") + value.type_name());
  return value.get<float>();
}

/// Refuses deep values while they are read: they take much memory, and many functions of json recurse.
bool is_flat(int depth, json::parse_event_t, const json&) {
  if (depth > 3) throw std::invalid_argument("the body is nested deeper than a list of samples");
  return true;
}

Request parse(const std::string& body) {
  const json content = json::parse(body, is_flat);
  const json& samples = content.at("samples");
  if (!samples.is_array() || samples.size() > most_samples)
    throw std::invalid_argument("'samples' is a list of at most " + std::to_string(most_samples) + " samples");
  Request request{at::empty({static_cast<int64_t>(samples.size()), Model::features}), {}};
  auto* to = request.samples.data_ptr<float>();
  for (const json& sample : samples) {
    if (!sample.is_array() || sample.size() != static_cast<size_t>(Model::features))
      throw std::invalid_argument("a sample is a list of " + std::to_string(Model::features) + " numbers");
    for (const json& value : sample) *to++ = number_of(value);
  }
  if (content.contains("ids")) request.ids = content.at("ids").get<std::vector<std::string>>();
  return request;
}

json predictions(const at::Tensor& logits, const at::Tensor& f, const std::vector<std::string>& ids) {
  json list = json::array();
  const at::Tensor best = logits.argmax(-1), bad = triage::err::is_err(f);
  for (int64_t i = 0; i < logits.size(0); ++i) {
    list.push_back({{"class", best[i].item<int64_t>()}});
    if (!ids.empty()) list.back()["id"] = ids[static_cast<size_t>(i)];
    if (!bad[i].item<bool>()) continue;
    for (const triage::flags::UnpackedError& error : triage::flags::unpack(f, i))
      list.back()["errors"].push_back(error.code_name + " @ " + error.location_name);
  }
  return list;
}

/// The time of the start makes it differ from those before a restart, which are in the same log.
std::string next_decision() {
  static const auto start = std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
  static std::atomic<uint64_t> next{1};
  return std::to_string(start) + "-" + std::to_string(next++);
}

void predict(const Model& model, Service& service, const httplib::Request& request, httplib::Response& response,
             const std::string& body) {
  const std::string decision =
      request.has_header("X-Request-Id") ? request.get_header_value("X-Request-Id") : next_decision();
  const at::NoGradGuard no_grad;
  const Request batch = parse(body);
  thread_local triage::RunInfo info;  // reused: a call that fills it allocates nothing
  triage::RunOptions options;
  options.info = &info;
  options.decision_id = decision;
  options.sample_ids = batch.ids;
  const auto [logits, f] = service.repair.run<2>({model(batch.samples)}, options);
  response.set_header("X-Request-Id", decision);
  answer(response, {{"decision", decision},
                    {"version", info.version},
                    {"answered", triage::to_string(info.answered)},
                    {"predictions", predictions(logits, f, batch.ids)}});
}

std::map<std::string, std::string> options_of(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--port", "8080"}, {"--admin-port", "8081"}, {"--log", ""},
                                                {"--capsules", ""}, {"--cache", ""},          {"--drain", "5"}};
  if (argc < 2)
    throw std::invalid_argument(
        "usage: demo_server POLICY.lua [--port N] [--admin-port N] [--log FILE] [--capsules DIR] [--cache DIR] "
        "[--drain SECONDS]");
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (!options.count(name)) throw std::invalid_argument("there is no option " + name);
    if (name == word && i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    options[name] = name == word ? argv[++i] : word.substr(name.size() + 1);
  }
  return options;
}

/// Serves until a signal to end comes, and then for the time to drain.
int serve(const std::filesystem::path& policy, std::map<std::string, std::string> options) {
  const int port = number("--port", options["--port"], 1, 65535);
  const int admin_port = number("--admin-port", options["--admin-port"], 1, 65535);
  const timespec drain{number("--drain", options["--drain"], 0, 3600), 0};
  const std::filesystem::path folder = std::filesystem::absolute(policy).parent_path();
  if (!std::filesystem::is_directory(folder))  // with a source in the cache it would start, and follow no change
    throw std::invalid_argument("no folder " + folder.string() + " to watch; create it, or pass another path");
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before the first thread: all inherit it

  triage::RuntimeOptions runtime_options;
  runtime_options.cache_dir = options["--cache"];
  if (!options["--log"].empty() || !options["--capsules"].empty())
    runtime_options.decisions = std::make_shared<triage::DecisionLog>(
        triage::DecisionLogOptions{.file = options["--log"], .capsule_dir = options["--capsules"]});
  triage::Runtime runtime(runtime_options);
  const Model model;
  Service service{runtime, runtime.load(policy)};
  const auto prepare = [&] {
    const at::NoGradGuard no_grad;  // as in /predict, whose calls it is for
    service.repair.prepare({model(at::zeros({2, Model::features}))});
  };
  prepare();
  triage::WatchOptions watching;
  watching.on_event = [&](const triage::WatchEvent& event) {  // a reload captured on a thread with gradients
    if (event.kind == triage::WatchEvent::Kind::reloaded) prepare();
  };
  const triage::Watch watch = runtime.watch(folder, watching);

  Port front(service, 500), admin(service, 400);
  front.post("/predict", [&](const auto& request, auto& response, const std::string& body) {
    predict(model, service, request, response, body);
  });
  front.Get("/health", [&](const auto&, auto& response) {
    if (service.draining) return refuse(response, 503, "draining");
    answer(response, {{"status", "ok"}, {"version", service.repair.version().number}});
  });
  add_admin_routes(admin, service);
  admin.open("127.0.0.1", admin_port);
  front.open("0.0.0.0", port);
  std::cout << "serving on port " << port << ", admin on 127.0.0.1:" << admin_port << std::endl;

  while (sigwaitinfo(&signals, nullptr) < 0) continue;  // SIGCONT interrupts it
  std::cout << "draining for " << drain.tv_sec << " s" << std::endl;
  service.draining = true;                  // /health says so, and each answer ends its connection
  sigtimedwait(&signals, nullptr, &drain);  // new requests go elsewhere meanwhile; a second signal ends this
  const bool answered_all = front.close(30s) && admin.close(5s);
  if (runtime_options.decisions) runtime_options.decisions->flush();
  if (answered_all) return 0;
  std::cerr << "ended before all clients had sent their requests or read their answers" << std::endl;
  std::_Exit(0);  // a thread still waits for them
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto options = options_of(argc, argv);
    return serve(argv[1], options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
