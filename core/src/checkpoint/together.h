// Work of which every rank does its part: a failure anywhere is thrown everywhere, and nobody is left waiting.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/process_group.h"

namespace tessera::checkpoint {

// Runs `body` on every rank, then exchanges what it returned: all texts, in rank order. When it failed on some rank,
// all ranks throw the error of the first such rank, with "rank N: " before it where there are several. Collective.
std::vector<std::string> together(const ProcessGroup& group, const char* label,
                                  const std::function<std::string()>& body);

// The same for work that a slow disk may hold up for longer than the group's deadline: it is done in another thread,
// and ranks keep in touch until all have done theirs. Collective.
std::vector<std::string> together_at_length(const ProcessGroup& group, const char* label,
                                            const std::function<std::string()>& body);

// Calls `work` until it returns false, on every rank. A rank that has less to do, or nothing, keeps in touch with the
// others meanwhile, so that it does not run into the group's deadline. Collective.
void together_in_turns(const ProcessGroup& group, const char* label, const std::function<bool()>& work);

// Of the thread that calls: training goes first where processors are few.
void give_way();

}  // namespace tessera::checkpoint
