// Oracle knows what was told and what was saved, and says what is wrong with a disk. See
// commit_sim.h for what must hold.
#ifndef CKPTD_TESTS_SIM_ORACLE_H_
#define CKPTD_TESTS_SIM_ORACLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/catalog/catalog.h"
#include "storage/disk/disk.h"
#include "storage/format/records.h"
#include "tests/storage/commit/test_save.h"

namespace ckptd {

// What somebody has been told about the save that is looked at.
struct Told {
  bool begun = false;
  uint32_t durable_nodes = 0;  // One bit each.
  bool abort_asked = false;    // So nobody may count on a commit.
  bool committed = false;      // Or listed by a daemon.
  bool failed = false;
  std::set<std::string> deleting;  // Ids whose deletion somebody has begun …
  std::set<AttemptName> deleted;   // … and what was told to be deleted.

  std::string Text() const;
};

bool IsListed(const std::vector<CheckpointInfo>& list, const AttemptName& attempt);

class Oracle {
 public:
  // What a save of this attempt writes, node by node.
  void Expect(const AttemptRecord& record, std::vector<TestNode> nodes);
  void Forget(absl::string_view checkpoint_id);
  const std::vector<TestNode>& Nodes(const AttemptName& attempt) const;

  // A committed checkpoint that the save is to replace.
  void SetOld(const AttemptName& attempt) { old_ = attempt; }
  // A committed checkpoint of another id.
  void AddOlder(const AttemptName& attempt) { older_.push_back(attempt); }
  // One that has lost its record, newer than all of AddOlder(); nothing may happen to it.
  void SetDamaged(std::string id) { damaged_ = std::move(id); }
  void AddForeign(std::string path, std::string content);
  const std::map<std::string, std::string>& foreign() const { return foreign_; }

  // Each gives the first thing that is wrong; empty if nothing is.
  // At any moment, by any reader; `record` is that of the save, if it has begun.
  std::string CheckAnyTime(Disk& disk, const Told& told, const AttemptRecord& record) const;
  // After recovery, when nobody is at work.
  std::string CheckSettled(Disk& disk, const AttemptRecord& record) const;

 private:
  struct Expected {
    std::string id;
    uint32_t world_size = 0;
    std::vector<TestNode> nodes;
  };

  std::string CheckList(const std::vector<CheckpointInfo>& list, const Told& told,
                        const AttemptName& attempt) const;
  std::string CheckDeleted(const std::vector<CheckpointInfo>& list, const Told& told) const;
  std::string CheckWhole(Disk& disk, const CheckpointInfo& info) const;
  std::string CheckForeign(Disk& disk) const;

  std::map<AttemptName, Expected> expected_;
  std::map<std::string, std::string> foreign_;  // Path and content.
  std::optional<AttemptName> old_;
  std::vector<AttemptName> older_;
  std::string damaged_;  // Its id; empty: none is.
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SIM_ORACLE_H_
