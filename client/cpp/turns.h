// Turns lets the saves of a session through one after the other, in the order in which they queued.
#ifndef CKPTD_CLIENT_CPP_TURNS_H_
#define CKPTD_CLIENT_CPP_TURNS_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

namespace ckptd::inline client {

// Thread-safe.
class Turns {
 public:
  enum class Turn : uint64_t {};

  Turn Queue();
  // Returns once every earlier turn is over: true; or once this one is: false.
  bool Await(Turn turn);
  // Is over; also without Await(), and more than once.
  void End(Turn turn);
  // Is over, unless it has come: every earlier one is over.
  void EndUnlessFirst(Turn turn);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  std::set<uint64_t> open_;  // Queued and not over.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_TURNS_H_
