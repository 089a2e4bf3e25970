// Pieces of SVG images whose colours are CSS variables, for light and dark screens.
#pragma once

#include <string>

namespace tessera::cli {

// For XML text and attributes: & < > " escaped, control characters and bytes that are not UTF-8 replaced.
std::string escaped(const std::string& text);

// Series have colours var(--c0) to var(--c15): more than a step has stages. Text upon them is var(--on).
inline constexpr size_t kColors = 16;
std::string color(size_t series);
// The CSS that sets them, and --bg, --ink, --soft, --grid, --good and --bad.
const char* palette();

// Width of a text of the plots' font, in the image's units, and the text cut to at most so many.
double text_width(const std::string& text);
std::string cut_to(const std::string& text, double width);

class Svg {
 public:
  // title: read aloud instead of the image.
  Svg(double width, double height, const std::string& title);

  void rect(double x, double y, double width, double height, const std::string& fill, const std::string& tip = "");
  void line(double x1, double y1, double x2, double y2, const char* css_class);
  void dot(double x, double y, const std::string& fill, const std::string& tip);
  // "M x y L x y ..."
  void path(const std::string& d, const std::string& stroke, bool dashed);
  // anchor: "start", "middle" or "end".
  void text(double x, double y, const std::string& text, const char* anchor = "start", const char* css_class = "");

  std::string str() const { return out_ + "</svg>\n"; }

 private:
  std::string out_;
};

}  // namespace tessera::cli
