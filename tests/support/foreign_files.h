// ForeignFiles plants files, folders and links of somebody else in a root, and sees that they stay
// what they were.
#ifndef CKPTD_TESTS_SUPPORT_FOREIGN_FILES_H_
#define CKPTD_TESTS_SUPPORT_FOREIGN_FILES_H_

#include <map>
#include <set>
#include <string>

namespace ckptd {

class ForeignFiles {
 public:
  // In every folder of the root that exists and has none yet: the root, .ckptd, .ckptd/nodes, each
  // job, and its checkpoints, attempts, failed, retired and trash.
  void PlantInRoot(const std::string& root);

  // Two more, which are no jobs of ours though they could be called so: "theirs" with nothing but
  // such files, and "theirs-too" with checkpoints/epoch-1, which holds no manifest.
  void PlantJobs(const std::string& root);

  // Content, mode and time of change of each are as they were; a failure names those that are not.
  // Checked ones are forgotten: the root may go.
  void Check();

  // One of the names that are planted.
  static bool IsOne(const std::string& name);

 private:
  void Plant(const std::string& folder);
  void PlantFolder(const std::string& folder);
  void Remember(const std::string& path);

  std::set<std::string> folders_;             // Planted in.
  std::map<std::string, std::string> known_;  // By path: how it was.
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_FOREIGN_FILES_H_
