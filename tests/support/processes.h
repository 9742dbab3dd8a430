// Real processes for tests: the daemon, trainers and ckptctl, in a folder of their own.
//
//     TestSite site;
//     TestDaemon daemon(site, {.faulty = true});
//     TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:float32:8"});
//     EXPECT_TRUE(rank.Ok("save a 1"));
//     EXPECT_EQ(rank.AwaitOutcome("a")["event"], "committed");
//
// Nothing waits for ever: what does not come in time is a test failure that says what was waited
// for. Destructors end what is left, by process id, and remove the folder; a test that is killed
// takes its processes along. Objects are for one thread each. The binaries are taken from the
// test's runfiles: name :processes among the deps, it brings them as data.
#ifndef CKPTD_TESTS_SUPPORT_PROCESSES_H_
#define CKPTD_TESTS_SUPPORT_PROCESSES_H_

#include <signal.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "storage/base/unique_fd.h"
#include "tests/support/foreign_files.h"

namespace ckptd {

using Json = nlohmann::json;

// Long enough for a loaded machine and the sanitizers.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Asks again and again; false if it was not true in time.
bool Eventually(const std::function<bool()>& condition, absl::Duration timeout = kPatience);

std::string ReadTextFile(const std::string& path);  // "" if there is none.
void WriteTextFile(const std::string& path, const std::string& text);

// A running program: `arguments[0]` is its path.
class ChildProcess {
 public:
  // -1: /dev/null, of the descriptors; they stay the caller's.
  struct Streams {
    int in = -1;
    int out = -1;
    int err = -1;
  };
  ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
               Streams streams);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();  // SIGKILL, unless it has ended.

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;  // Nothing once its end was seen.
  bool Running();

  // The exit code, or minus the signal that ended it. Nullopt if it still runs after `timeout`.
  std::optional<int> AwaitEnd(absl::Duration timeout = kPatience);

 private:
  pid_t pid_ = -1;
  std::optional<int> end_;
};

// A folder below /tmp, short enough for sockets, with the places of a daemon in it.
//
// Before each start of a daemon, and before each delete, somebody else's files are planted in all
// folders of both roots that exist by then; in the end they must be what they were.
class TestSite {
 public:
  TestSite();
  TestSite(const TestSite&) = delete;
  TestSite& operator=(const TestSite&) = delete;
  ~TestSite();

  const std::string& folder() const { return folder_; }
  std::string socket() const { return folder_ + "/s"; }
  std::string root() const { return folder_ + "/root"; }
  std::string other_root() const { return folder_ + "/other"; }  // Of a daemon with two.
  std::string fault_file() const { return folder_ + "/faults"; }
  std::string fault_log() const { return folder_ + "/fault-log"; }

  // From now on this is the plan of a faulty daemon here; its rules count from 1. Written under
  // another name and renamed, so that no half of it is read.
  void SetFaults(const std::string& plan) const;
  std::vector<Json> FaultLog() const;  // What faulty daemons here have logged.

  void PlantForeignFiles() const;
  void PlantForeignJobs() const { foreign_.PlantJobs(root()); }
  // For a root that goes before the site does.
  void CheckForeignFiles() const { foreign_.Check(); }

 private:
  std::string folder_;
  mutable ForeignFiles foreign_;
};

// A daemon at the site's socket and root. The constructor returns once it is ready, or has ended.
class TestDaemon {
 public:
  struct Options {
    bool faulty = false;  // ckptd_faulty, with the site's fault file and log.
    std::vector<std::string> flags = {};
    std::string socket = {};  // Empty: the site's.
    std::string root = {};
    std::string node = "node-a";
    std::vector<std::string> variables = {};
  };
  TestDaemon(const TestSite& site, const Options& options);
  explicit TestDaemon(const TestSite& site) : TestDaemon(site, Options()) {}

  ChildProcess& process() { return *process_; }
  pid_t pid() const { return process_->pid(); }
  bool ready() const { return ready_; }
  std::string Log() const;  // All that it wrote to stderr.

  void Kill();                // SIGKILL, and waits for its end.
  std::optional<int> Stop();  // SIGTERM; its exit code.

 private:
  const std::string log_path_;
  std::optional<ChildProcess> process_;
  bool ready_ = false;
};

// A rank that does what it is told, or trains some --steps (client/examples: trainer).
class TestTrainer {
 public:
  // The site's socket, job "job" and incarnation "1" are added to `flags`, unless they name others;
  // so is --stdin, unless they name --steps.
  TestTrainer(const TestSite& site, std::vector<std::string> flags);

  ChildProcess& process() { return *process_; }
  pid_t pid() const { return process_->pid(); }

  void Send(const std::string& command);
  // The answer to a command sent before, by its verb; null, and a failure, if it does not come.
  Json Answer(const std::string& verb, absl::Duration timeout = kPatience);
  Json Do(const std::string& command, absl::Duration timeout = kPatience);
  // True if the answer says so; else a failure that quotes it.
  bool Ok(const std::string& command, absl::Duration timeout = kPatience);

  // The first event of one of these names about `id` that came or comes; null if none does.
  Json FindEvent(const std::set<std::string>& names, const std::string& id, absl::Duration timeout);
  // "committed" or "failed"; a failure if neither comes.
  Json AwaitOutcome(const std::string& id, absl::Duration timeout = kPatience);
  // Tells it that no more commands come, and reads the rest. Its exit code.
  std::optional<int> Finish(absl::Duration timeout = kPatience);
  // Events so far, also those without an id.
  const std::vector<Json>& events() const { return events_; }

 private:
  bool ReadLines(absl::Duration timeout);  // False if nothing came, or nothing more will.

  UniqueFd in_;
  UniqueFd out_;
  std::optional<ChildProcess> process_;
  std::string partial_;
  std::deque<Json> answers_;
  std::vector<Json> events_;
};

// The flags of one rank of a job, and `more`.
std::vector<std::string> RankFlags(int rank, int world_size, std::vector<std::string> more);

// Fills the state for the step, and begins a save of it; its answer comes later.
void BeginSave(TestTrainer& rank, const std::string& id, int step);

// The checkpoint is there at once, and holds the bytes of that step.
void ExpectLoads(TestTrainer& rank, const std::string& id, int step);

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
  Json json;  // Of `out`; null if that is none.
};

// A program with `arguments`, to its end. A failure, and exit code -1, if it does not end in time.
CommandResult RunProgram(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& variables = {},
                         absl::Duration timeout = kPatience);

// ckptctl at the site's socket, with -o json.
CommandResult Ckptctl(const TestSite& site, std::vector<std::string> arguments);
// ckptctl on the site's root, without a daemon.
CommandResult OfflineCkptctl(const TestSite& site, std::vector<std::string> arguments);

// The ids that the daemon lists of the job, in order.
std::vector<std::string> ListedIds(const TestSite& site, const std::string& job = "job");

// Every file and folder below `folder`, by its path in it, with its content ("/" for a folder).
// Without what the site has planted.
std::map<std::string, std::string> ReadTree(const std::string& folder);

inline constexpr char kDaemonBinary[] = "server/ckptd";
inline constexpr char kFaultyDaemonBinary[] = "tests/support/ckptd_faulty";
inline constexpr char kCkptctlBinary[] = "client/cli/ckptctl";
inline constexpr char kTrainerBinary[] = "client/examples/trainer";

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_PROCESSES_H_
