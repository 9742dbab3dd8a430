#include "tests/support/temp_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "storage/base/check.h"

namespace ckptd {

TempFolder::TempFolder() {
  const char* parent = ::getenv("TEST_TMPDIR");
  path_ = std::string(parent != nullptr ? parent : "/tmp") + "/ckptd-test-XXXXXX";
  CKPT_CHECK(::mkdtemp(path_.data()) != nullptr, "a temporary folder can be made");
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ckptd
