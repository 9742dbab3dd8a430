// Mutations are deliberate mistakes in the handling of blocks, which the tests must catch: the
// proof that they look. See storage/commit/mutation.h, whose kind these are.
#ifndef CKPTD_SERVER_MUTATION_H_
#define CKPTD_SERVER_MUTATION_H_

namespace ckptd {

enum class BlockMutation {
  kNone,
  kReuseBeforeCompletion,  // A block is free as soon as it is sealed, not once it was written and
                           // checked.
};

#ifdef CKPTD_MUTATIONS
inline BlockMutation active_block_mutation = BlockMutation::kNone;  // Set while nothing runs.
inline bool Mutated(BlockMutation mutation) { return mutation == active_block_mutation; }
#else
constexpr bool Mutated(BlockMutation) { return false; }
#endif

}  // namespace ckptd

#endif  // CKPTD_SERVER_MUTATION_H_
