#include "server/sessions.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {

Sessions::Sessions(ControlLoop& loop, Options options)
    : loop_(loop), options_(std::move(options)) {}

absl::StatusOr<const Session*> Sessions::Open(const SessionInfo& info, uint64_t connection) {
  for (auto& [token, session] : by_token_) {
    const SessionInfo& held = session.info;
    if (held.job != info.job || held.incarnation != info.incarnation || held.rank != info.rank)
      continue;
    if (held.pid != info.pid || info.pid == 0) {
      return absl::AlreadyExistsError(absl::StrCat("rank ", info.rank, " of job \"", info.job,
                                                   "\" is held by the living process ", held.pid,
                                                   "; process ", info.pid, " cannot have it too"));
    }
    loop_.Cancel(std::exchange(session.lost_timer, ControlLoop::TimerId::kNone));
    session.info = info;
    session.state = Session::State::kAlive;
    session.connection = connection;
    token_of_connection_[connection] = token;
    Release(std::exchange(session.watched, connection));
    return &session;
  }
  Session session;
  session.info = info;
  session.token = options_.new_token();
  session.opened = next_order_++;
  session.connection = session.watched = connection;
  token_of_connection_[connection] = session.token;
  auto [position, inserted] = by_token_.emplace(session.token, std::move(session));
  return &position->second;
}

Session* Sessions::ByConnection(uint64_t connection) {
  auto token = token_of_connection_.find(connection);
  if (token == token_of_connection_.end()) return nullptr;
  auto session = by_token_.find(token->second);
  return session == by_token_.end() ? nullptr : &session->second;
}

void Sessions::Disconnected(uint64_t connection) {
  Session* session = ByConnection(connection);
  if (session == nullptr) return Release(connection);  // Refused, closed, or connected anew.
  session->state = Session::State::kDisconnected;
  session->connection = 0;
  session->lost_timer = loop_.After(options_.peer_lost_timeout, [this, token = session->token] {
    End(token, SessionEnd::kLost);
  });
}

void Sessions::Died(uint64_t connection) {
  Session* session = ByConnection(connection);
  if (session != nullptr) End(session->token, SessionEnd::kDead);
}

void Sessions::Close(const std::string& token) { End(token, SessionEnd::kClosed); }

absl::StatusOr<const Session*> Sessions::Find(absl::string_view token) const {
  auto found = by_token_.find(std::string(token));
  if (found == by_token_.end()) return absl::UnauthenticatedError("no session has this token");
  return &found->second;
}

void Sessions::End(const std::string& token, SessionEnd end) {
  auto found = by_token_.find(token);
  if (found == by_token_.end()) return;
  Session session = std::move(found->second);
  session.ended = next_order_++;
  by_token_.erase(found);
  loop_.Cancel(session.lost_timer);
  Release(session.watched);
  options_.on_end(session, end);
}

void Sessions::Release(uint64_t connection) {
  token_of_connection_.erase(connection);
  if (release_) release_(connection);
}

}  // namespace ckptd
