#include "tests/support/sessions.h"

#include <gtest/gtest.h>

#include <utility>

namespace ckptd {

std::unique_ptr<Session> OpenSession(const TestSite& site, uint32_t rank, uint32_t world_size,
                                     const std::string& incarnation) {
  SessionOptions options;
  options.client.socket = site.socket();
  options.job = "job";
  options.rank = rank;
  options.world_size = world_size;
  options.incarnation = incarnation;
  auto session = Session::Open(options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

absl::Status Commit(Session& session, const std::string& id, const State& state) {
  auto save = session.AsyncSave(id, 1, state);
  if (!save.ok()) return save.status();
  return save->Wait(SaveState::kCommitted, kPatience);
}

absl::StatusOr<LoadReport> LoadNow(Session& session, const std::string& id,
                                   std::vector<TensorTarget> targets, const LoadOptions& options) {
  auto load = session.Load(id, std::move(targets), options);
  if (!load.ok()) return load.status();
  return load->Wait(kPatience);
}

}  // namespace ckptd
