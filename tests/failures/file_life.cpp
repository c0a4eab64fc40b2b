// A life of what reads and writes files beside policies: paths from the current folder, capsules, programs, saved
// values, logs and traces.
#include "tests/failures/life.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace triage::test {
namespace {

namespace fs = std::filesystem;

void must(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

ExportedProgram program() {
  return export_function("twice", {"x"}, {at::ones({2, 3})},
                         [](at::ArrayRef<at::Tensor> in) { return std::vector<at::Tensor>{in[0] * 2}; });
}

/// One thing that a host does with files. It throws a triage::Error, or does all of it.
struct Errand {
  const char* name;
  void (*run)(Life& life);
};

const Errand errands[] = {
    {"loading from the current folder",
     [](Life& life) {
       const fs::path file = [&] {
         const Paused paused;
         return fs::relative(life.path("plain.lua"));
       }();
       life.runtime->load(file);
     }},
    {"loading an empty path",
     [](Life& life) {
       try {
         life.runtime->load("");
       } catch (const FileError&) {
         return;
       }
       throw std::runtime_error("an empty path is loaded");
     }},
    {"saving and loading a tensor",
     [](Life& life) {
       for (const char* const name : {"t.pt", "t.npy", "t.safetensors"}) {
         const std::string path = life.path(name).string();
         save_tensor(path, at::ones({2, 3}));
         must(at::equal(load_tensor(path), at::ones({2, 3})), "a tensor is read as another one");
       }
     }},
    {"saving several files",
     [](Life& life) {
       save_files({{life.path("a.pt").string(), at::ones({2})}, {life.path("b.pt").string(), at::zeros({2})}});
       must(at::equal(load_file(life.path("b.pt").string()).toTensor(), at::zeros({2})), "a file is another one");
     }},
    {"recording and replaying",
     [](Life& life) {
       const Policy policy = life.runtime->load(life.path("plain.lua"));
       const std::string capsule = life.path("capsule.pt").string();
       record(policy, {bad_batch()}, {.file = capsule});
       must(replay(capsule).same, "a replay gives something else");
     }},
    {"saving and loading a program",
     [](Life& life) {
       const std::string path = life.path("twice.program").string();
       program().save(path);
       must(at::equal(ExportedProgram::load(path).run({at::ones({2, 3})})[0], at::full({2, 3}, 2.0)),
            "a program is read as another one");
     }},
    {"saving a program as TorchScript", [](Life& life) { program().save_torchscript(life.path("twice.pt").string()); }},
    {"logging and tracing to files",
     [](Life& life) {
       const Diagnostics before = get_diagnostics();
       Diagnostics to_files = before;
       to_files.log_file = life.path("log.txt").string();
       to_files.trace_dir = life.path("trace").string();
       to_files.debug_dir = life.path("debug").string();
       struct Back {
         const Diagnostics& before;
         ~Back() {
           const Paused paused;
           set_diagnostics(before);
         }
       } back{before};
       set_diagnostics(to_files);
       const Policy policy = life.runtime->load(life.path("plain.lua"));
       policy.run({bad_batch()});
     }},
    {"candidates from files",
     [](Life& life) {
       const Policy policy = life.runtime->load(life.path("plain.lua"));
       policy.shadow(life.path("other.lua"), {.share = 1});
       policy.run({bad_batch()});
       policy.end_candidate();
       policy.canary(life.path("other.lua"), {.share = 1});
       policy.run({bad_batch()});
       policy.end_candidate();
     }},
    {"a decision log with capsules",
     [](Life& life) {
       DecisionLogOptions log;
       log.file = life.path("more.jsonl");
       log.capsule_dir = life.path("capsules");
       RuntimeOptions options;
       options.decisions = std::make_shared<DecisionLog>(log);
       options.log = [](const LogRecord&) {};
       Runtime runtime(options);
       runtime.load(life.path("plain.lua")).run({bad_batch()});
       options.decisions->flush();
     }},
    {"a bundle that is not there", [](Life& life) {
       try {
         life.runtime->load_bundle(life.path("nowhere"));
       } catch (const FileError&) {
         return;
       }
       throw std::runtime_error("a bundle is loaded that is not there");
     }}};

}  // namespace

void live_with_files(Life& life) {
  life.write("p.lua", repair_source(1));
  const char* const plain =
      "return policy {inputs = {'z'}, outputs = {'z', 'f'}, run = function(z) return fix(z, flag_nan(z, 'z'), 'z') "
      "end}";
  life.write("plain.lua", plain);
  life.write("other.lua", std::string(plain) + "\n");
  life.begin();
  for (const Errand& errand : errands) life.step(errand.name, [&] { errand.run(life); });
  life.end();
  for (const Errand& errand : errands) {
    try {
      errand.run(life);
    } catch (const std::exception& error) {
      life.check(false, std::string(errand.name) + " fails afterwards: " + error.what());
    }
  }
}

}  // namespace triage::test
