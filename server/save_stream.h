// SaveStream is how the control loop answers one rank's save. The RPC layer implements it; tests
// record it.
//
// Threads: called on the loop, never blocks. After Committed() or Failed() nothing more is sent.
#ifndef CKPTD_SERVER_SAVE_STREAM_H_
#define CKPTD_SERVER_SAVE_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "storage/catalog/catalog.h"
#include "storage/format/paths.h"
#include "storage/format/records.h"

namespace ckptd {

struct BlockGrant {
  uint32_t image_block = 0;
  uint32_t arena_block = 0;
};

class SaveStream {
 public:
  virtual ~SaveStream() = default;

  virtual void Admitted(const AttemptName& attempt) = 0;
  virtual void Assigned(const std::vector<uint32_t>& ordinals, uint64_t arena_generation) = 0;
  virtual void Granted(const std::vector<BlockGrant>& grants) = 0;
  virtual void Staged() = 0;
  virtual void Durable() = 0;
  virtual void Committed(const CheckpointInfo& checkpoint) = 0;
  virtual void Failed(const Failure& failure) = 0;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_SAVE_STREAM_H_
