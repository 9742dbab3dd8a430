// A test's own sessions at the daemon of a site, for what a trainer's command line cannot say.
#ifndef CKPTD_TESTS_SUPPORT_SESSIONS_H_
#define CKPTD_TESTS_SUPPORT_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/session.h"
#include "tests/support/processes.h"

namespace ckptd {

// Of the job "job"; a failure, and null, if it cannot be opened.
std::unique_ptr<Session> OpenSession(const TestSite& site, uint32_t rank, uint32_t world_size,
                                     const std::string& incarnation = "1");

// Saves as step 1, and waits until that is committed.
absl::Status Commit(Session& session, const std::string& id, const State& state);

// Loads, and waits for the end.
absl::StatusOr<LoadReport> LoadNow(Session& session, const std::string& id,
                                   std::vector<TensorTarget> targets,
                                   const LoadOptions& options = {});

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_SESSIONS_H_
