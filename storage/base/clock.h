// Clock is where all time comes from, so that tests can move it. Thread-safe.
#ifndef CKPTD_STORAGE_BASE_CLOCK_H_
#define CKPTD_STORAGE_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace ckptd {

class Clock {
 public:
  virtual ~Clock() = default;

  // Time since an arbitrary start; never goes back and does not jump with the wall clock. Every
  // time-out uses this.
  virtual absl::Duration Monotonic() const = 0;

  // The wall clock, for people to read. No decision is made by it.
  virtual absl::Time Wall() const = 0;
};

// CLOCK_MONOTONIC and CLOCK_REALTIME. Lives for ever.
const Clock& SystemClock();

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_CLOCK_H_
