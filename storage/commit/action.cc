#include "storage/commit/action.h"

namespace ckptd {

Action MakeDirAction(std::string path, uint32_t mode) {
  return {.kind = Action::Kind::kMakeDir, .path = std::move(path), .mode = mode};
}

Action CreateAction(std::string path, std::string bytes, uint32_t mode) {
  return {.kind = Action::Kind::kCreate,
          .path = std::move(path),
          .bytes = std::move(bytes),
          .mode = mode};
}

Action SyncAction(std::string path) {
  return {.kind = Action::Kind::kSync, .path = std::move(path)};
}

Action CloseAction(std::string path) {
  return {.kind = Action::Kind::kClose, .path = std::move(path)};
}

Action SyncDirAction(std::string path) {
  return {.kind = Action::Kind::kSyncDir, .path = std::move(path)};
}

Action RenameAction(std::string path, std::string target) {
  return {.kind = Action::Kind::kRename, .path = std::move(path), .target = std::move(target)};
}

Action UnlinkAction(std::string path) {
  return {.kind = Action::Kind::kUnlink, .path = std::move(path)};
}

Action RemoveDirAction(std::string path) {
  return {.kind = Action::Kind::kRemoveDir, .path = std::move(path)};
}

Action ReadFileAction(std::string path) {
  return {.kind = Action::Kind::kReadFile, .path = std::move(path)};
}

Action StatAction(std::string path) {
  return {.kind = Action::Kind::kStat, .path = std::move(path)};
}

Action ListAction(std::string path) {
  return {.kind = Action::Kind::kList, .path = std::move(path)};
}

Action Before(const char* point, Action action) {
  action.point_before = point;
  return action;
}

Action After(Action action, const char* point) {
  action.point_after = point;
  return action;
}

}  // namespace ckptd
