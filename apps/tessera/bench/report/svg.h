// Builds SVG images whose colours are CSS variables, for light and dark screens.
#pragma once

#include <string>

namespace tessera::cli {

// Escapes text for XML: & < > " are escaped, control characters and invalid UTF-8 are replaced.
std::string escaped(const std::string& text);

// Series have the colours var(--c0) to var(--c15); no step has as many stages. Text on them is var(--on).
inline constexpr size_t kColors = 16;
std::string color(size_t series);
// The CSS that defines these colours, and --bg, --ink, --soft, --grid, --good and --bad.
const char* palette();

// The width of a text in the plots' font, in the image's units, and the text shortened to a width.
double text_width(const std::string& text);
std::string cut_to(const std::string& text, double width);

class Svg {
 public:
  // `title` is read aloud instead of the image.
  Svg(double width, double height, const std::string& title);

  void rect(double x, double y, double width, double height, const std::string& fill, const std::string& tip = "");
  void line(double x1, double y1, double x2, double y2, const char* css_class);
  void dot(double x, double y, const std::string& fill, const std::string& tip);
  // "M x y L x y ..."
  void path(const std::string& d, const std::string& stroke, bool dashed);
  // `anchor` is "start", "middle" or "end".
  void text(double x, double y, const std::string& text, const char* anchor = "start", const char* css_class = "");

  std::string str() const { return out_ + "</svg>\n"; }

 private:
  std::string out_;
};

}  // namespace tessera::cli
