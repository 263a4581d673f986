// SPDX-License-Identifier: Apache-2.0
// Parser of the suite's tables: lines → rows → (per combination of variables) steps → words.
// Quotes keep blanks, semicolons and arrows together; macros are expanded after splitting, so a value can't add words.
#include "tests/posix/table.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace nacre::posix {
namespace {

struct Token {
  std::string text;
  bool quoted = false;
};

[[noreturn]] void malformed(const std::string& where, const std::string& why) {
  throw std::runtime_error(where + ": " + why);
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case '0': out += '\0'; break;
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'x': {
        auto digits = std::string(text.substr(i + 1, 2));
        out += static_cast<char>(std::stoi(digits, nullptr, 16));
        i += 2;
        break;
      }
      default: out += text[i];
    }
  }
  return out;
}

// Splits a row's steps into tokens; ";" outside quotes is a token of its own.
std::vector<Token> tokenize(const std::string& text, const std::string& where) {
  std::vector<Token> tokens;
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ' ' || text[i] == '\t') {
      ++i;
    } else if (text[i] == ';') {
      tokens.push_back({";", false});
      ++i;
    } else if (text[i] == '"') {
      auto end = text.find('"', i + 1);
      if (end == std::string::npos) malformed(where, "a quote is not closed");
      tokens.push_back({text.substr(i + 1, end - i - 1), true});
      i = end + 1;
    } else {
      auto end = text.find_first_of(" \t;", i);
      if (end == std::string::npos) end = text.size();
      tokens.push_back({text.substr(i, end - i), false});
      i = end;
    }
  }
  return tokens;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

std::string substitute(std::string text, const Variables& variables) {
  for (const auto& [name, value] : variables) {
    auto mark = "$" + name;
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size())) text.replace(at, mark.size(), value);
  }
  return text;
}

void finish_step(Row& row, Step& step, bool wants, std::string& want) {
  if (step.words.empty()) malformed(row.where, "a step without an operation (an empty ';'?)");
  if (wants) step.want = want;
  row.steps.push_back(std::move(step));
  step = Step{};
  want.clear();
}

Row parse_steps(const std::string& name, const std::string& where, const std::string& text) {
  Row row{name, where, {}};
  Step step;
  std::string want;
  bool wants = false;
  for (const auto& token : tokenize(text, where)) {
    if (!token.quoted && token.text == ";") {
      finish_step(row, step, wants, want);
      wants = false;
      continue;
    }
    step.text += (step.text.empty() ? "" : " ") + token.text;
    auto word = expand_repeats(token.text);
    if (!token.quoted && token.text == "->" && !wants) {
      wants = true;
    } else if (wants) {
      want += (want.empty() ? "" : " ") + word;
    } else if (!token.quoted && word.starts_with('@') && step.words.empty()) {
      step.who = word.substr(1);
    } else if (!token.quoted && word == "child" && step.words.empty()) {
      step.in_child = true;
    } else {
      step.words.push_back(word);
    }
  }
  finish_step(row, step, wants, want);
  return row;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(by); at != std::string::npos; at = text.find(by, begin)) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// A value of a variable can be several words: "~" stands for a blank.
std::string blanks_for_tildes(std::string value) {
  std::replace(value.begin(), value.end(), '~', ' ');
  return value;
}

void expand_rows(const std::string& header, const std::string& steps, const std::string& where, std::vector<Row>& rows) {
  std::vector<std::string> words;
  for (const auto& token : tokenize(header, where)) words.push_back(token.text);
  if (words.empty()) malformed(where, "a row without a name");
  std::vector<Variables> combinations{{}};
  std::string suffix;
  for (size_t i = 1; i < words.size(); ++i) {
    auto equal = words[i].find('=');
    if (equal == std::string::npos) malformed(where, "'" + words[i] + "' is no VAR=a,b,… in the head of a row");
    auto name = words[i].substr(0, equal);
    std::vector<Variables> next;
    for (const auto& base : combinations) {
      for (const auto& value : split(words[i].substr(equal + 1), ',')) {
        next.push_back(base);
        next.back().emplace_back(name, blanks_for_tildes(value));
      }
    }
    combinations = std::move(next);
  }
  if (rows.size() + combinations.size() > kMaxRowsPerTable) malformed(where, "too many rows in one table");
  for (const auto& variables : combinations) {
    std::string name = words[0];
    for (const auto& [variable, value] : variables) name += "/" + value;
    rows.push_back(parse_steps(name, where, substitute(steps, variables)));
  }
}

// The head ends at the first colon that is followed by a blank or the end of the line.
size_t end_of_head(const std::string& line) {
  for (size_t at = line.find(':'); at != std::string::npos; at = line.find(':', at + 1)) {
    if (at + 1 == line.size() || line[at + 1] == ' ') return at;
  }
  return std::string::npos;
}

}  // namespace

std::string expand_repeats(std::string_view word) {
  std::string out;
  for (size_t i = 0; i < word.size();) {
    auto star = word[i] == '<' ? word.find('*', i) : std::string_view::npos;
    auto end = star == std::string_view::npos ? star : word.find('>', star);
    auto digits = end == std::string_view::npos ? std::string_view{} : word.substr(star + 1, end - star - 1);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      out += word[i++];
      continue;
    }
    auto piece = unescape(word.substr(i + 1, star - i - 1));
    for (auto n = std::stoul(std::string(digits)); n > 0; --n) out += piece;
    i = end + 1;
  }
  return out.find('\\') == std::string::npos ? out : unescape(out);
}

std::vector<Row> load_table(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": can't be read; give the directory of the tables with --tables");
  auto short_name = path.substr(path.rfind('/') + 1);
  std::vector<Row> rows;
  std::string line, head, steps, where;
  int number = 0;
  auto flush = [&] {
    if (!head.empty()) expand_rows(head, steps, where, rows);
    head.clear();
    steps.clear();
  };
  while (std::getline(file, line)) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    if (line[0] == ' ' || line[0] == '\t') {
      if (head.empty()) malformed(short_name + ":" + std::to_string(number), "a continued line without a row before it");
      steps += " " + line;
      continue;
    }
    flush();
    where = short_name + ":" + std::to_string(number);
    auto colon = end_of_head(line);
    if (colon == std::string::npos) malformed(where, "no ': ' after the head of the row");
    head = line.substr(0, colon);
    steps = line.substr(colon + 1);
  }
  flush();
  return rows;
}

}  // namespace nacre::posix
