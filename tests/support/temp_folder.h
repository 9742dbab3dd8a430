// TempFolder is an empty folder of a test's own, removed with everything in it by the destructor.
//
// It lies below TEST_TMPDIR (of the test runner) or /tmp.
#ifndef CKPTD_TESTS_SUPPORT_TEMP_FOLDER_H_
#define CKPTD_TESTS_SUPPORT_TEMP_FOLDER_H_

#include <string>

namespace ckptd {

class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_TEMP_FOLDER_H_
