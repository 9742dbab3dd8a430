// SeveralRoots answers for all roots of a daemon together: each is asked on its own and at the same
// time, so that one that hangs, or is unhealthy, takes nothing from the others.
//
// A job may lie in several roots. Without a name it is the only one that any of them has. An id
// that several roots hold means the newest by (sequence, attempt) wherever something is read, with
// a warning that names the others; it is never deleted without the name of a root.
//
// A root that cannot be read is left out of the answer, with a warning, and not asked again. It is
// an error if no other root has an answer.
#ifndef CKPTD_CLIENT_CLI_SEVERAL_ROOTS_H_
#define CKPTD_CLIENT_CLI_SEVERAL_ROOTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/source.h"

namespace ckptd {

class SeveralRoots : public Source {
 public:
  struct Root {
    std::string label;
    std::string path;  // For people.
    std::unique_ptr<Source>
        source;  // Of this root alone. Answers in bounded time, but for Verify().
  };
  struct Place {
    std::string job;
    std::string root;  // Label.
  };

  explicit SeveralRoots(std::vector<Root> roots);  // In the order of the answers.

  absl::StatusOr<v1::ListReply> List(const std::string& job, bool failed) override;
  absl::StatusOr<v1::Checkpoint> Latest(const std::string& job) override;
  absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name) override;
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& job, const std::string& id,
                                             const std::string& glob) override;
  // Of all, those are read whose root answers a list.
  absl::StatusOr<std::vector<v1::VerifyReply>> Verify(const std::string& job,
                                                      const std::vector<std::string>& ids) override;
  absl::Status Unread() const override;

  // Where a checkpoint is, or else the newest attempt at it. NotFound.
  absl::StatusOr<Place> Find(const std::string& job, const std::string& id);

  // The same for ids that are to be deleted, each once, in their order. InvalidArgument, naming
  // them, if several roots hold one; the error of a root that cannot be read.
  struct Doomed {
    std::string id;
    Place place;
  };
  absl::StatusOr<std::vector<Doomed>> FindToDelete(const std::string& job,
                                                   const std::vector<std::string>& ids);

 private:
  struct Slot {
    Root root;
    absl::Status unread;  // Why it is not asked any more.
  };
  struct Holder;
  struct Looked;
  template <typename Reply>
  using Answers = std::vector<absl::StatusOr<Reply>>;  // In the order of the roots.

  template <typename Reply>
  Answers<Reply> Ask(const std::function<absl::StatusOr<Reply>(Source&)>& question);
  std::string NameOf(const Root& root) const;
  absl::StatusOr<std::string> OneJob(const std::string& job);
  absl::StatusOr<Looked> Look(const std::string& job, bool failed);
  absl::StatusOr<std::vector<Holder>> HoldersOf(const Looked& looked, const std::string& id) const;
  void WarnOfOthers(const std::string& id, const std::vector<size_t>& holders);

  std::vector<Slot> slots_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_SEVERAL_ROOTS_H_
