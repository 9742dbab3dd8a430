#include "storage/commit/runner.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/format/records.h"

namespace ckptd {

ActionRunner::ActionRunner(Disk& disk, std::function<void(absl::string_view)> on_point)
    : disk_(disk), on_point_(std::move(on_point)) {}

void ActionRunner::Adopt(std::string path, std::unique_ptr<File> file) {
  open_[std::move(path)] = std::move(file);
}

ActionResult ActionRunner::Run(const Action& action) {
  if (on_point_ && action.point_before != nullptr) on_point_(action.point_before);
  ActionResult result;
  result.status = RunCall(action, result);
  if (on_point_ && action.point_after != nullptr && result.status.ok()) {
    on_point_(action.point_after);
  }
  return result;
}

void ActionRunner::RunToEnd(Machine& machine) {
  while (machine.Next().has_value()) machine.Done(Run(*machine.Next()));
}

absl::Status ActionRunner::RunCall(const Action& action, ActionResult& result) {
  switch (action.kind) {
    case Action::Kind::kMakeDir:
      return disk_.MakeDir(action.path, action.mode);
    case Action::Kind::kCreate:
      return Create(action);
    case Action::Kind::kSync:
    case Action::Kind::kClose: {
      auto file = open_.find(action.path);
      if (file == open_.end()) {
        return absl::FailedPreconditionError(absl::StrCat(action.path, " is not open"));
      }
      if (action.kind == Action::Kind::kSync) return file->second->Sync();
      absl::Status closed = file->second->Close();
      open_.erase(file);
      return closed;
    }
    case Action::Kind::kSyncDir:
      return disk_.SyncDir(action.path);
    case Action::Kind::kRename:
      return disk_.Rename(action.path, action.target);
    case Action::Kind::kUnlink:
      return disk_.Unlink(action.path);
    case Action::Kind::kRemoveDir:
      return disk_.RemoveDir(action.path);
    case Action::Kind::kReadFile: {
      ASSIGN_OR_RETURN(result.bytes, ReadSmallFile(disk_, action.path, kRecordFileBytesMax));
      return absl::OkStatus();
    }
    case Action::Kind::kStat: {
      ASSIGN_OR_RETURN(result.info, disk_.Stat(action.path));
      return absl::OkStatus();
    }
    case Action::Kind::kList: {
      ASSIGN_OR_RETURN(result.entries, disk_.List(action.path));
      return absl::OkStatus();
    }
  }
  return absl::InternalError("an action of no kind");
}

absl::Status ActionRunner::Create(const Action& action) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, disk_.Create(action.path, action.mode));
  absl::Status written = WriteAll(*file, 0, std::as_bytes(std::span(action.bytes)));
  if (!written.ok()) {
    file->Close().IgnoreError();
    return WithContext(written, absl::StrCat("write ", action.path));
  }
  Adopt(action.path, std::move(file));
  return absl::OkStatus();
}

}  // namespace ckptd
