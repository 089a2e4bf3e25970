#include "bench/report/svg.h"

#include <cstdio>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr const char* kPalette = R"(
:root { color-scheme: light dark; --bg: #fcfcfb; --ink: #1d1f21; --soft: #5f6368; --grid: #dfe1e4; --good: #1a7f37;
  --bad: #c4311d; --on: #ffffff; --c0: #2a78d6; --c1: #c2610c; --c2: #1a8f6a; --c3: #8e4ec6; --c4: #a87708;
  --c5: #c2356b; --c6: #5a6b7b; --c7: #64821a; --c8: #0b7285; --c9: #8b1e3f; --c10: #4338ca; --c11: #6f4518;
  --c12: #0891b2; --c13: #a21caf; --c14: #d9534f; --c15: #1e3a5f; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #17191c; --ink: #e8eaed; --soft: #a5abb3; --grid: #363b41; --good: #56d364; --bad: #ff8a7a;
    --on: #17191c; --c0: #5ea0ee; --c1: #f0924a; --c2: #3fc79a; --c3: #b98cf0; --c4: #dcb13c; --c5: #ee7fa8;
    --c6: #9fb0c0; --c7: #a9c95c; --c8: #8fe3f0; --c9: #f2647f; --c10: #8b93f8; --c11: #c8a27a; --c12: #22c3e0;
    --c13: #e07bf0; --c14: #ffb3a7; --c15: #d7e3f4; }
}
)";

constexpr double kCharacter = 7.0;  // a generous mean width at 12.5 units of a common sans-serif font

std::string place(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", x);
  return text;
}

// Bytes of the UTF-8 character that starts at text[i]; 0 if none starts there.
size_t utf8_length(const std::string& text, size_t i) {
  const auto first = static_cast<unsigned char>(text[i]);
  const size_t length = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

std::string tip_of(const std::string& tip) { return tip.empty() ? "" : "<title>" + escaped(tip) + "</title>"; }

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0) {
      out += "?";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n') {
      out += ' ';
    } else {
      out.append(text, i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

std::string color(size_t series) { return str_cat("var(--c", series % kColors, ")"); }

const char* palette() { return kPalette; }

double text_width(const std::string& text) { return kCharacter * static_cast<double>(text.size()); }

std::string cut_to(const std::string& text, double width) {
  if (text_width(text) <= width) return text;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = std::max<size_t>(utf8_length(text, i), 1);
    if (text_width(out) + 2 * kCharacter > width) break;
    out.append(text, i, length);
    i += length;
  }
  return out + "…";
}

Svg::Svg(double width, double height, const std::string& title)
    : out_(str_cat("<svg viewBox=\"0 0 ", place(width), " ", place(height), "\" style=\"max-width:", place(width),
                   "px\" role=\"img\" aria-label=\"", escaped(title), "\">\n")) {}

void Svg::rect(double x, double y, double width, double height, const std::string& fill, const std::string& tip) {
  out_ += str_cat("<rect x=\"", place(x), "\" y=\"", place(y), "\" width=\"", place(std::max(width, 0.0)),
                  "\" height=\"", place(height), "\" fill=\"", fill, "\">", tip_of(tip), "</rect>\n");
}

void Svg::line(double x1, double y1, double x2, double y2, const char* css_class) {
  out_ += str_cat("<line x1=\"", place(x1), "\" y1=\"", place(y1), "\" x2=\"", place(x2), "\" y2=\"", place(y2),
                  "\" class=\"", css_class, "\"/>\n");
}

void Svg::dot(double x, double y, const std::string& fill, const std::string& tip) {
  out_ += str_cat("<circle cx=\"", place(x), "\" cy=\"", place(y), "\" r=\"4\" fill=\"", fill, "\">", tip_of(tip),
                  "</circle>\n");
}

void Svg::path(const std::string& d, const std::string& stroke, bool dashed) {
  out_ += str_cat("<path d=\"", d, "\" fill=\"none\" stroke=\"", stroke, "\" stroke-width=\"2\"",
                  dashed ? " stroke-dasharray=\"5 4\"" : "", "/>\n");
}

void Svg::text(double x, double y, const std::string& text, const char* anchor, const char* css_class) {
  out_ += str_cat("<text x=\"", place(x), "\" y=\"", place(y), "\" text-anchor=\"", anchor, "\" class=\"", css_class,
                  "\">", escaped(text), "</text>\n");
}

}  // namespace tessera::cli
