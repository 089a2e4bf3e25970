#include "movielens.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "files.h"
#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using tessera::sdk::cut;
using tessera::sdk::fail;
using tessera::sdk::finished;
using tessera::sdk::parse_number;
using tessera::sdk::row_of;

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

std::string str(int64_t number) { return std::to_string(number); }

// Calls row(fields, place) for every line after the header, whose names must be `names`.
template <size_t N, class Row>
void for_each_row(const std::string& path, const std::array<const char*, N>& names, Row&& row) {
  RecordReader lines(files_of(path, {}).front(), {'\t', false});
  std::string_view line;
  int64_t number = 1;
  if (!lines.next(line, 0)) fail(TSR_INVALID_ARGUMENT, path, " is empty");
  for (const char* name : names) {
    std::string_view field = finished(line) ? std::string_view() : cut(line, '\t');
    if (cut(field, ':') != name) {
      fail(TSR_INVALID_ARGUMENT, path, ":1: the header has no \"", name,
           "\" in its place: not a RecBole file of MovieLens");
    }
  }
  std::array<std::string_view, N> fields;
  while (lines.next(line, number)) {
    const LinePlace place{path, ++number};
    for (std::string_view& field : fields) {
      if (finished(line)) place.wrong("a line has ", N, " fields; this one has fewer");
      field = cut(line, '\t');
    }
    if (!finished(line)) place.wrong("there are more than ", N, " fields");
    row(fields, place);
  }
}

// Parses an integer from `least` to `most`. The bounds prevent later overflows.
int64_t integer(std::string_view text, const char* what, int64_t least, int64_t most, const LinePlace& place) {
  int64_t value = 0;
  if (!parse_number(text, value)) place.wrong(what, " is \"", text, "\", but must be an integer");
  if (value < least || value > most) place.wrong(what, " is ", value, ", but must be ", least, " to ", most);
  return value;
}

// Checks that ids run from 1 in order, without gaps.
void check_id(std::string_view text, size_t before, const char* what, const LinePlace& place) {
  int64_t id = 0;
  if (!parse_number(text, id) || id != static_cast<int64_t>(before) + 1)
    place.wrong(what, " is ", text, ", but must be ", before + 1);
}

std::vector<User> read_users(const std::string& path) {
  std::vector<User> users;
  for_each_row(
      path, std::array{"user_id", "age", "gender", "occupation", "zip_code"}, [&](const auto& f, const auto& lines) {
        check_id(f[0], users.size(), "user_id", lines);
        users.push_back({integer(f[1], "age", 0, kOldest, lines), str(row_of("o=", f[3], 256)) + '\t' +
                                                                      str(row_of("s=", f[2], 4)) + '\t' +
                                                                      str(row_of("z=", f[4].substr(0, 3), 2048))});
      });
  return users;
}

std::string genre_bag(std::string_view genres) {
  std::string bag;
  for (size_t n = 0; n < kMaxGenres && !genres.empty();) {
    const std::string_view genre = cut(genres, ' ');
    if (genre.empty()) continue;
    bag += (n > 0 ? "," : "") + str(row_of("g=", genre, 256));
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
  for (const std::string& w : words) bag += (bag.empty() ? "" : ",") + str(row_of("t=", w, 8192));
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
  std::array<char, 64> text{};
  auto n = static_cast<size_t>(std::snprintf(text.data(), text.size(), "%.6f", value));
  while (text[n - 1] == '0') --n;
  if (text[n - 1] == '.') --n;
  const std::string_view number(text.data(), n);
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
  for (size_t i = first; i < films.size(); ++i) out += (i > first ? "," : "") + str(films[i]);
}

void append_row(std::string& out, const Rating& r, const User& user, const Film& film, const History& history,
                const Prior& film_prior) {
  out += r.rating >= 4 ? "1\t" : "0\t";
  const int64_t hour = r.timestamp % 86400 / 3600;
  const std::array<double, 7> dense = {static_cast<double>(user.age - 35) / 15.0,
                                       history.prior.log_count(),
                                       history.prior.mean(),
                                       film_prior.log_count(),
                                       film_prior.mean(),
                                       film.year,
                                       static_cast<double>(hour - 12) / 12.0};
  for (size_t i = 0; i < dense.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, dense[i]);
  }
  out += '\t' + str(r.user) + '\t' + str(r.film) + '\t' + user.bags + '\t' + film.bags + '\t';
  append_last(out, history.liked);
  out += '\t';
  append_last(out, history.disliked);
  out += '\n';
}

SampleForm form_of(size_t users, size_t films) {
  const auto user_rows = static_cast<int64_t>(users), film_rows = static_cast<int64_t>(films);
  return {.name = "movielens-100k",
          .dense = {"age", "log_user_prior", "user_prior_mean", "log_film_prior", "film_prior_mean", "year", "hour"},
          .tables = {{"user", user_rows},
                     {"film", film_rows},
                     {"occupation", 256},
                     {"gender", 4},
                     {"zip3", 2048},
                     {"genres", 256},
                     {"title", 8192, "mean"},
                     {"liked", film_rows, "mean"},
                     {"disliked", film_rows, "mean"}}};
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
  std::vector<int64_t> train(static_cast<size_t>(users), 0);  // number of the user's training rows still to come
  for (const Rating& r : ratings) ++train[static_cast<size_t>(r.user)];
  for (int64_t& n : train) n -= n / kTestEvery;
  return [train](size_t, const Rating& r) mutable { return train[static_cast<size_t>(r.user)]-- <= 0; };
}

struct Split {
  const char* name;
  IsTest (*make)(const std::vector<Rating>&);
};
constexpr Split kSplits[] = {{"user", split_by_user}, {"time", split_by_time}};

const Split* find_split(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(kSplits), std::end(kSplits), [&](const Split& split) { return name == split.name; });
  return found == std::end(kSplits) ? nullptr : found;
}

std::vector<User> users_in(const std::string& directory) { return read_users(directory + "/ml-100k.user"); }
std::vector<Film> films_in(const std::string& directory) { return read_films(directory + "/ml-100k.item"); }

}  // namespace

PreparedText prepare_movielens_100k(const std::string& directory, const std::string& split) {
  const std::vector<User> users = users_in(directory);
  const std::vector<Film> films = films_in(directory);
  const std::vector<Rating> ratings = read_ratings(directory + "/ml-100k.inter", static_cast<int64_t>(users.size()),
                                                   static_cast<int64_t>(films.size()));
  const IsTest is_test = find_split(split)->make(ratings);

  PreparedText text{.form = form_of(users.size(), films.size())};
  std::vector<History> histories(users.size());
  std::vector<Prior> film_priors(films.size());
  for (size_t i = 0; i < ratings.size(); ++i) {
    const Rating& r = ratings[i];
    History& history = histories[static_cast<size_t>(r.user)];
    Prior& film_prior = film_priors[static_cast<size_t>(r.film)];
    append_row(is_test(i, r) ? text.test : text.train, r, users[static_cast<size_t>(r.user)],
               films[static_cast<size_t>(r.film)], history, film_prior);
    for (Prior* prior : {&history.prior, &film_prior}) {
      ++prior->count;
      prior->sum += r.rating;
    }
    (r.rating >= 4 ? history.liked : history.disliked).push_back(r.film);
  }
  return text;
}

MovieLens::MovieLens(tessera::sdk::Options& options) : split_(options.string("split", "user")) {
  if (find_split(split_) == nullptr)
    fail(TSR_INVALID_ARGUMENT, "split is \"", split_, "\", but movielens-100k has the splits user and time");
}

const char* MovieLens::opens(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/ml-100k.inter", ignored) ? "" : nullptr;
}

const char* MovieLens::describe(const std::string& path) {
  said_ = form_of(users_in(path).size(), films_in(path).size()).described();
  return said_.c_str();
}

// The values go through the text, so that all digits equal those of the prepared files.
void MovieLens::open(std::string_view path, int64_t) {
  text_ = prepare_movielens_100k(std::string(path), split_);
  form_ = text_.form;
  start(form_.columns());
  files_ = {"movielens-100k train rows", "movielens-100k test rows"};
  parts_.clear();
  for (const std::string* text : {&text_.train, &text_.test}) {
    const int64_t file = text == &text_.train ? 0 : 1;
    const auto rows = static_cast<int64_t>(std::count(text->begin(), text->end(), '\n'));
    if (rows > 0) parts_.push_back({file, 0, rows, static_cast<int64_t>(text->size())});
  }
}

std::string_view MovieLens::text_of(int64_t block) {
  return parts_[static_cast<size_t>(block)].file == 0 ? text_.train : text_.test;
}

}  // namespace tessera_readers
