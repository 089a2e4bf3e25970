// The files of plugins/template, which are part of the program (cmake/project_templates.cmake).
#pragma once

#include <span>

namespace tessera::cli {

struct ProjectTemplate {
  const char* kind;  // "sharder"
  const char* id;    // of the component in the text
  const char* text;  // of the plugin's source
};
std::span<const ProjectTemplate> project_templates();

// What all kinds have in common, with @ID@, @TARGET@ and @KIND@ for what differs.
struct ProjectFile {
  const char* path;  // in the project
  const char* text;
};
std::span<const ProjectFile> project_files();

}  // namespace tessera::cli
