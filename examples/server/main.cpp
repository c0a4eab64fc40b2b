// An inference server. A model answers, a policy finds and repairs the bad samples of each batch, and the policy changes while it
// serves: edit the file, or send commands to the admin port.
//
//   demo_server POLICY.lua [--port 8080] [--admin-port 8081] [--log decisions.jsonl] [--cache DIR]
//   curl -d '{"samples": [[1,2,3,4,5,6,7,8], [null,2,3,4,5,6,7,8]]}' localhost:8080/predict
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <pthread.h>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "model.h"
#include "server.h"

using nlohmann::json;

void answer(httplib::Response& response, const json& content) {
  // Names come from scripts and clients: what is no UTF-8 is replaced.
  response.set_content(content.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", "application/json");
}

void refuse(httplib::Response& response, int status, const std::string& message) {
  response.status = status;
  answer(response, {{"error", message}});
}

namespace {

constexpr size_t most_samples = 4096;

struct Request {
  at::Tensor samples;
  std::vector<std::string> ids;  // as many as samples, or none
};

/// A number, or null for NaN, which JSON does not have.
float number_of(const json& value) {
  if (value.is_null()) return std::numeric_limits<float>::quiet_NaN();
  if (!value.is_number()) throw std::invalid_argument("a sample is a list of numbers (null: NaN), got " + value.dump());
  return value.get<float>();
}

Request parse(const std::string& body) {
  const json content = json::parse(body);
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

json errors_of(const at::Tensor& f, int64_t sample) {
  json errors = json::array();
  for (const triage::flags::UnpackedError& error : triage::flags::unpack(f, sample))
    errors.push_back(error.code_name + " @ " + error.location_name);
  return errors;
}

json predictions(const at::Tensor& logits, const at::Tensor& f, const std::vector<std::string>& ids) {
  json list = json::array();
  const at::Tensor best = logits.argmax(-1), bad = triage::err::is_err(f);
  for (int64_t i = 0; i < logits.size(0); ++i) {
    list.push_back({{"class", best[i].item<int64_t>()}});
    if (!ids.empty()) list.back()["id"] = ids[static_cast<size_t>(i)];
    if (bad[i].item<bool>()) list.back()["errors"] = errors_of(f, i);
  }
  return list;
}

void predict(const Model& model, Service& service, const httplib::Request& request, httplib::Response& response) {
  static std::atomic<uint64_t> next{1};
  const std::string decision =
      request.has_header("X-Request-Id") ? request.get_header_value("X-Request-Id") : std::to_string(next++);
  const at::NoGradGuard no_grad;
  const Request batch = parse(request.body);
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

/// The client's mistakes are its own; everything else is a failure of the server.
void predict_safely(const Model& model, Service& service, const httplib::Request& request,
                    httplib::Response& response) {
  try {
    predict(model, service, request, response);
  } catch (const json::exception& error) {
    refuse(response, 400, error.what());
  } catch (const std::invalid_argument& error) {
    refuse(response, 400, error.what());
  } catch (const triage::InputError& error) {
    refuse(response, 400, error.what());
  } catch (const std::exception& error) {
    refuse(response, 500, error.what());
  }
}

std::map<std::string, std::string> options_of(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--port", "8080"}, {"--admin-port", "8081"}, {"--log", ""}, {"--cache", ""}};
  for (int i = 2; i < argc; i += 2) {
    if (!options.count(argv[i]) || i + 1 == argc) throw std::invalid_argument(std::string("wrong option: ") + argv[i]);
    options[argv[i]] = argv[i + 1];
  }
  return options;
}

/// Serves until a signal to end comes. What is being answered then is answered to its end.
int serve(const std::filesystem::path& policy, std::map<std::string, std::string> options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before the first thread: all inherit it

  triage::RuntimeOptions runtime_options;
  runtime_options.cache_dir = options["--cache"];
  if (!options["--log"].empty()) {
    triage::DecisionLogOptions log;
    log.file = options["--log"];
    runtime_options.decisions = std::make_shared<triage::DecisionLog>(log);
  }
  triage::Runtime runtime(runtime_options);
  const Model model;
  Service service{runtime, runtime.load(policy)};
  service.repair.prepare({model(at::zeros({2, Model::features}))});
  const triage::Watch watch = runtime.watch(std::filesystem::absolute(policy).parent_path());

  httplib::Server front, admin;
  front.set_tcp_nodelay(true);  // else an answer waits for the client's delayed acknowledgement
  front.Post("/predict",
             [&](const auto& request, auto& response) { predict_safely(model, service, request, response); });
  front.Get("/health", [&](const auto&, auto& response) {
    if (service.draining) return refuse(response, 503, "draining");
    answer(response, {{"status", "ok"}, {"version", service.repair.version().number}});
  });
  add_admin_routes(admin, service);
  if (!front.bind_to_port("0.0.0.0", std::stoi(options["--port"])) ||
      !admin.bind_to_port("127.0.0.1", std::stoi(options["--admin-port"])))
    throw std::runtime_error("a port is in use");
  std::thread serving([&] { front.listen_after_bind(); });
  std::thread administering([&] { admin.listen_after_bind(); });
  std::cout << "serving on port " << options["--port"] << ", admin on 127.0.0.1:" << options["--admin-port"]
            << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  std::cout << "draining" << std::endl;
  service.draining = true;
  front.stop();
  serving.join();
  admin.stop();
  administering.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: demo_server POLICY.lua [--port N] [--admin-port N] [--log FILE] [--cache DIR]\n";
    return 2;
  }
  try {
    return serve(argv[1], options_of(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
