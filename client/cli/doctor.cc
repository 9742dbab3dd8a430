#include "client/cli/doctor.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/bounded_probe.h"
#include "client/cli/folder_checks.h"
#include "client/cli/host_checks.h"
#include "storage/base/clock.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

struct Name {
  const char* name;
  bool needed;
};
constexpr Name kNames[] = {
    {"io_uring", false},   {"fixed_buffers", false}, {"direct_io", false},   {"memlock", false},
    {"huge_pages", false}, {"memory", true},         {"file_system", false}, {"rename", true},
    {"fsync", true},       {"locks", true},          {"socket", true},
};

HostCheck NoAnswer(const Name& name, absl::Duration timeout) {
  return {name.name, name.needed, false,
          absl::StrCat("no answer within ", ckptd::FormatDuration(timeout)),
          "the file system hangs: look at its mount, its server and the kernel's log"};
}

}  // namespace

std::vector<HostCheck> Doctor(const DoctorOptions& options) {
  absl::Duration deadline = SystemClock().Monotonic() + options.timeout;
  BoundedProbe root([&](const BoundedProbe::Emit& emit) { CheckRoot(options.root, emit); });
  BoundedProbe socket([&](const BoundedProbe::Emit& emit) { emit(CheckSocket(options.socket)); });
  std::vector<HostCheck> found = CheckHost();
  for (BoundedProbe* probe : {&root, &socket}) {
    std::vector<HostCheck> more = probe->Collect(deadline);
    std::move(more.begin(), more.end(), std::back_inserter(found));
  }
  std::vector<HostCheck> checks;
  for (const Name& name : kNames) {
    HostCheck check = NoAnswer(name, options.timeout);
    for (const HostCheck& candidate : found) {
      if (candidate.name == name.name) check = candidate;
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

std::vector<std::string> MissingNeeds(const std::vector<HostCheck>& checks) {
  std::vector<std::string> missing;
  for (const HostCheck& check : checks) {
    if (check.needed && !check.ok) missing.push_back(check.name);
  }
  return missing;
}

}  // namespace ckptd
