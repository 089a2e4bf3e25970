// Turns MovieLens-100K, as RecBole packs it, into prepared text: labels, seven dense values, and nine columns that
// depend only on earlier ratings.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/hash.h"
#include "data/line_reader.h"
#include "data/readers.h"

namespace tessera::data {
namespace {

constexpr size_t kHistory = 20, kMaxGenres = 6, kMaxWords = 12;
constexpr int64_t kOldest = 150, kMostStars = 5, kLastSecond = int64_t{1} << 40;
constexpr int64_t kTimeTrainComponents = 4, kTestEvery = 5;  // time: 4/5 of all; user: floor(n / 5) of each

struct Rating {
  int64_t user, film, rating, timestamp;  // user and film count from 0
};
struct User {
  int64_t age;
  std::string bags;  // "occupation\tgender\tzip3"
};
struct Film {
  double year;       // the dense value
  std::string bags;  // "genres\ttitle"
};

// Calls row(fields, place) for every line after the header, whose names must be `names`.
template <size_t N, class Row>
void for_each_row(const std::string& path, const std::array<const char*, N>& names, Row&& row) {
  LineReader lines(path);
  std::string_view line;
  if (!lines.next(line)) fail(Code::kInvalidArgument, path, " is empty");
  for (const char* name : names) {
    std::string_view field = finished(line) ? std::string_view() : cut(line, '\t');
    if (cut(field, ':') != name) {
      fail(Code::kInvalidArgument, path, ":1: the header has no \"", name,
           "\" in its place: not a RecBole file of MovieLens");
    }
  }
  std::array<std::string_view, N> fields;
  while (lines.next(line)) {
    for (std::string_view& field : fields) {
      if (finished(line))
        fail(Code::kInvalidArgument, lines.where(), ": a line has ", N, " fields; this one has fewer");
      field = cut(line, '\t');
    }
    if (!finished(line)) fail(Code::kInvalidArgument, lines.where(), ": there are more than ", N, " fields");
    row(fields, lines);
  }
}

// Parses an integer from `least` to `most`. The bounds prevent later overflows.
int64_t integer(std::string_view text, const char* what, int64_t least, int64_t most, const LineReader& lines) {
  int64_t value = 0;
  if (!parse_number(text, value)) {
    fail(Code::kInvalidArgument, lines.where(), ": ", what, " is \"", text, "\", but must be an integer");
  }
  if (value < least || value > most)
    fail(Code::kInvalidArgument, lines.where(), ": ", what, " is ", value, ", but must be ", least, " to ", most);
  return value;
}

// Checks that ids run from 1 in order, without gaps.
void check_id(std::string_view text, size_t before, const char* what, const LineReader& lines) {
  int64_t id = 0;
  if (!parse_number(text, id) || id != static_cast<int64_t>(before) + 1)
    fail(Code::kInvalidArgument, lines.where(), ": ", what, " is ", text, ", but must be ", before + 1);
}

std::vector<User> read_users(const std::string& path) {
  std::vector<User> users;
  for_each_row(
      path, std::array{"user_id", "age", "gender", "occupation", "zip_code"}, [&](const auto& f, const auto& lines) {
        check_id(f[0], users.size(), "user_id", lines);
        users.push_back(
            {integer(f[1], "age", 0, kOldest, lines), str_cat(row_of("o=", f[3], 256), '\t', row_of("s=", f[2], 4),
                                                              '\t', row_of("z=", f[4].substr(0, 3), 2048))});
      });
  return users;
}

std::string genre_bag(std::string_view genres) {
  std::string bag;
  for (size_t n = 0; n < kMaxGenres && !genres.empty();) {
    const std::string_view genre = cut(genres, ' ');
    if (genre.empty()) continue;
    bag += str_cat(n ? "," : "", row_of("g=", genre, 256));
    ++n;
  }
  return bag;
}

// Extracts words: runs of at least two of a-z (A-Z lower-cased) and 0-9, each at its first occurrence.
std::string title_bag(std::string_view title) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (word.size() >= 2 && words.size() < kMaxWords && std::find(words.begin(), words.end(), word) == words.end()) {
      words.push_back(word);
    }
    word.clear();
  };
  for (char c : title) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      word += c;
    else
      end_word();
  }
  end_word();
  std::string bag;
  for (const std::string& w : words) bag += str_cat(bag.empty() ? "" : ",", row_of("t=", w, 8192));
  return bag;
}

std::vector<Film> read_films(const std::string& path) {
  std::vector<Film> films;
  for_each_row(
      path, std::array{"item_id", "movie_title", "release_year", "class"}, [&](const auto& f, const auto& lines) {
        check_id(f[0], films.size(), "item_id", lines);
        const bool year_known = f[2].size() == 4 && f[2].find_first_not_of("0123456789") == std::string_view::npos;
        const double year =
            year_known ? static_cast<double>(integer(f[2], "release_year", 0, 9999, lines) - 1990) / 20.0 : 0.0;
        films.push_back({year, genre_bag(f[3]) + '\t' + title_bag(f[1])});
      });
  return films;
}

std::vector<Rating> read_ratings(const std::string& path, int64_t users, int64_t films) {
  std::vector<Rating> ratings;
  for_each_row(path, std::array{"user_id", "item_id", "rating", "timestamp"}, [&](const auto& f, const auto& lines) {
    ratings.push_back({integer(f[0], "user_id", 1, users, lines) - 1, integer(f[1], "item_id", 1, films, lines) - 1,
                       integer(f[2], "rating", 1, kMostStars, lines),
                       integer(f[3], "timestamp", 0, kLastSecond, lines)});
  });
  std::stable_sort(ratings.begin(), ratings.end(),
                   [](const Rating& a, const Rating& b) { return a.timestamp < b.timestamp; });
  return ratings;
}

// Formats as %.6f without trailing zeros, and without a minus before zero.
void append_number(std::string& out, double value) {
  char text[64];
  int n = std::snprintf(text, sizeof text, "%.6f", value);
  while (text[n - 1] == '0') --n;
  if (text[n - 1] == '.') --n;
  const std::string_view number(text, static_cast<size_t>(n));
  out += number == "-0" ? "0" : number;
}

// Number and sum of earlier ratings.
struct Prior {
  int64_t count = 0, sum = 0;
  double log_count() const { return std::log(static_cast<double>(1 + count)) - 4; }
  double mean() const {  // mean rating minus 3.5, in one division
    return count == 0 ? 0.0 : static_cast<double>(2 * sum - 7 * count) / (2.0 * static_cast<double>(count));
  }
};

// The knowledge of a user before a rating.
struct History {
  Prior prior;
  std::vector<int64_t> liked, disliked;  // films, oldest first
};

void append_last(std::string& out, const std::vector<int64_t>& films) {
  const size_t first = films.size() > kHistory ? films.size() - kHistory : 0;
  for (size_t i = first; i < films.size(); ++i) out += str_cat(i > first ? "," : "", films[i]);
}

void append_row(std::string& out, const Rating& r, const User& user, const Film& film, const History& history,
                const Prior& film_prior) {
  out += r.rating >= 4 ? "1\t" : "0\t";
  const int64_t hour = r.timestamp % 86400 / 3600;
  const double dense[] = {static_cast<double>(user.age - 35) / 15.0,
                          history.prior.log_count(),
                          history.prior.mean(),
                          film_prior.log_count(),
                          film_prior.mean(),
                          film.year,
                          static_cast<double>(hour - 12) / 12.0};
  for (size_t i = 0; i < std::size(dense); ++i) {
    if (i > 0) out += ',';
    append_number(out, dense[i]);
  }
  out += str_cat('\t', r.user, '\t', r.film, '\t', user.bags, '\t', film.bags, '\t');
  append_last(out, history.liked);
  out += '\t';
  append_last(out, history.disliked);
  out += '\n';
}

std::string meta_text(size_t users, size_t films) {
  using json = nlohmann::ordered_json;
  json columns = json::array();
  const auto column = [&](const char* name, size_t rows, const char* pooling, size_t longest) {
    columns.push_back({{"name", name}, {"rows", rows}, {"pooling", pooling}, {"max_len", longest}});
  };
  column("user", users, "sum", 1);
  column("film", films, "sum", 1);
  column("occupation", 256, "sum", 1);
  column("gender", 4, "sum", 1);
  column("zip3", 2048, "sum", 1);
  column("genres", 256, "sum", kMaxGenres);
  column("title", 8192, "mean", kMaxWords);
  column("liked", films, "mean", kHistory);
  column("disliked", films, "mean", kHistory);
  const json meta = {
      {"name", "movielens-100k"},
      {"dense", {"age", "log_user_prior", "user_prior_mean", "log_film_prior", "film_prior_mean", "year", "hour"}},
      {"columns", columns}};
  return meta.dump(1) + "\n";
}

// test(i, rating): true if row i of the sorted ratings belongs to the test part.
using IsTest = std::function<bool(size_t, const Rating&)>;

IsTest split_by_time(const std::vector<Rating>& ratings) {
  const size_t train = ratings.size() * kTimeTrainComponents / (kTimeTrainComponents + 1);
  return [train](size_t i, const Rating&) { return i >= train; };
}

IsTest split_by_user(const std::vector<Rating>& ratings) {
  int64_t users = 0;
  for (const Rating& r : ratings) users = std::max(users, r.user + 1);
  std::vector<int64_t> train(users, 0);  // number of the user's training rows still to come
  for (const Rating& r : ratings) ++train[r.user];
  for (int64_t& n : train) n -= n / kTestEvery;
  return [train](size_t, const Rating& r) mutable { return train[r.user]-- <= 0; };
}

struct Split {
  const char* name;
  IsTest (*make)(const std::vector<Rating>&);
};
constexpr Split kSplits[] = {{"user", split_by_user}, {"time", split_by_time}};

IsTest make_split(const std::string& name, const std::vector<Rating>& ratings) {
  for (const Split& split : kSplits) {
    if (name == split.name) return split.make(ratings);
  }
  fail(Code::kInvalidArgument, "data.split is \"", name, "\", but movielens-100k has the splits user and time");
}

ExamplesPtr parse_part(std::string_view text, const Dataset& set, const char* name, int64_t limit) {
  Examples examples(set.dense.size(), set.columns);
  while (!text.empty() && (limit == 0 || examples.size() < limit)) {
    add_prepared_line(cut(text, '\n'), name, examples.size() + 1, examples);
  }
  return finish(std::move(examples));
}

}  // namespace
}  // namespace tessera::data

namespace tessera {

PreparedText prepare_movielens_100k(const std::string& directory, const std::string& split) {
  using namespace data;
  const std::vector<User> users = read_users(directory + "/ml-100k.user");
  const std::vector<Film> films = read_films(directory + "/ml-100k.item");
  const std::vector<Rating> ratings = read_ratings(directory + "/ml-100k.inter", static_cast<int64_t>(users.size()),
                                                   static_cast<int64_t>(films.size()));
  const IsTest is_test = make_split(split, ratings);

  PreparedText text;
  text.meta = meta_text(users.size(), films.size());
  std::vector<History> histories(users.size());
  std::vector<Prior> film_priors(films.size());
  for (size_t i = 0; i < ratings.size(); ++i) {
    const Rating& r = ratings[i];
    History& history = histories[r.user];
    Prior& film_prior = film_priors[r.film];
    append_row(is_test(i, r) ? text.test : text.train, r, users[r.user], films[r.film], history, film_prior);
    for (Prior* prior : {&history.prior, &film_prior}) {
      ++prior->count;
      prior->sum += r.rating;
    }
    (r.rating >= 4 ? history.liked : history.disliked).push_back(r.film);
  }
  return text;
}

namespace data {

Dataset describe_movielens_100k(const DataConfig&) { return parse_meta(meta_text(1, 1), "movielens-100k"); }

// Goes through the text, so that all digits equal those of the prepared files.
Dataset read_movielens_100k(const DataConfig& config, uint64_t) {
  const PreparedText text = prepare_movielens_100k(config.path, config.split);
  Dataset set = parse_meta(text.meta, "movielens-100k");
  set.train = parse_part(text.train, set, "movielens-100k train rows", config.limit);
  set.test = parse_part(text.test, set, "movielens-100k test rows", config.limit);
  return set;
}

}  // namespace data
}  // namespace tessera
