// The files of plugins/template, compiled into the program (cmake/project_templates.cmake).
#pragma once

#include <span>

namespace tessera::cli {

struct ProjectTemplate {
  const char* kind;  // such as "sharder"
  const char* id;    // id of the component in the text
  const char* text;  // source of the plugin
};
std::span<const ProjectTemplate> project_templates();

// A file common to all kinds, with @ID@, @TARGET@ and @KIND@ as placeholders.
struct ProjectFile {
  const char* path;  // path in the project
  const char* text;
};
std::span<const ProjectFile> project_files();

}  // namespace tessera::cli
