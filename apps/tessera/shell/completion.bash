# bash completion for tessera: commands and options as the program itself lists them; values are files.
_tessera() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[1]} help names
  COMPREPLY=()
  # names: the commands that a help text lists, two spaces before each.
  if [ "$COMP_CWORD" -eq 1 ]; then
    help=$("$program" help 2>/dev/null)
  else
    help=$("$program" help "$first" 2>/dev/null) || return
  fi
  names=$(sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' <<<"$help")
  if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ -n "$names" ]; }; then
    mapfile -t COMPREPLY < <(compgen -W "$names --help" -- "$word")
    [ "${#COMPREPLY[@]}" -gt 0 ] && return
  fi
  if [ -n "$names" ] && [ "$COMP_CWORD" -gt 2 ]; then
    help=$("$program" help "$first" "${COMP_WORDS[2]}" 2>/dev/null) || return
  fi
  if [[ $word == -* ]]; then
    names=$(grep -o -E '^  (-[a-z] \[ )?--[a-z-]+' <<<"$help" | grep -o -e '--[a-z-]*')
    mapfile -t COMPREPLY < <(compgen -W "$names" -- "$word")
  fi
}
complete -o default -F _tessera tessera
