// ckptd_faulty: ckptd, plus faults on demand (fault_plan.h). The production binary has no such
// hook.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/config.h"
#include "server/log.h"
#include "server/run.h"
#include "storage/base/status.h"
#include "tests/support/fault_disk.h"
#include "tests/support/fault_plan.h"

namespace ckptd {
namespace {

struct FaultFlags {
  FaultInjector::Options injector;
  bool list = false;
};

Setting Text(std::string flag, std::string value, std::string help, std::string* target) {
  Setting setting;
  setting.group = "Faults";
  setting.flag = std::move(flag);
  setting.value = std::move(value);
  setting.help = std::move(help);
  setting.flag_only = true;
  setting.set = [target](const std::vector<std::string>& texts, Config&) {
    *target = texts.back();
    return absl::OkStatus();
  };
  return setting;
}

std::vector<Setting> FaultSettings(FaultFlags& flags) {
  std::vector<Setting> settings;
  settings.push_back(
      Text("fault-plan", "\"RULE;RULE\"", "Faults, see --fault-list.", &flags.injector.plan));
  settings.push_back(Text("fault-file", "FILE", "A plan that is read again whenever it changes.",
                          &flags.injector.plan_file));
  settings.push_back(Text("fault-log", "FILE", "A JSON line for every point passed and rule fired.",
                          &flags.injector.log_file));
  Setting list;
  list.group = "Faults";
  list.flag = "fault-list";
  list.help = "Print every operation, point and action, and exit.";
  list.flag_only = true;
  list.set = [&flags](const std::vector<std::string>&, Config&) {
    flags.list = true;
    return absl::OkStatus();
  };
  settings.push_back(std::move(list));
  return settings;
}

int Main(const std::vector<std::string>& arguments) {
  FaultFlags flags;
  std::vector<Setting> settings = FaultSettings(flags);
  Surroundings surroundings = Surroundings::OfThisProcess();
  absl::StatusOr<Config> config = ParseConfig(arguments, surroundings, settings);
  if (flags.list) {
    std::fputs(FaultListText().c_str(), stdout);
    return 0;
  }
  if (std::optional<int> code = AnswerWithoutRunning(config, surroundings, settings)) return *code;
  absl::StatusOr<std::unique_ptr<FaultInjector>> injector = FaultInjector::Create(flags.injector);
  if (!injector.ok()) {
    std::fprintf(stderr, "ckptd_faulty: %s\n", std::string(injector.status().message()).c_str());
    return 2;
  }
  Daemon::Options options;
  options.config = *std::move(config);
  options.open_disk = [&injector](
                          const std::string& path,
                          const DiskOptions& disk) -> absl::StatusOr<std::unique_ptr<Disk>> {
    ASSIGN_OR_RETURN(std::unique_ptr<Disk> opened, OpenDisk(path, disk));
    return MakeFaultDisk(std::move(opened), **injector);
  };
  options.on_point = [&injector](absl::string_view point) { (*injector)->OnPoint(point); };
  Logger logger(options.config.log_level, options.config.log_format);
  return RunDaemon(std::move(options), logger);
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  return ckptd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
