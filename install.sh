#!/bin/sh
# Installs the `agent` of this checkout, and says what it does:
#
#   ./install.sh                        with uv, as a command for every folder
#   ./install.sh --uninstall            removes that again
#   ./install.sh --venv FOLDER [WHAT]   with pip into a virtual environment (make does it)
#
# llama.cpp comes compiled from the index of llama-cpp-python where that has it for this machine;
# otherwise it is compiled here. Environment variables:
#
#   LLAMA_WHEEL   which one of the index: cpu, metal, vulkan, cu125, rocm72, …; none: compile
#   LLAMA_INDEX   the index's address
#   CMAKE_ARGS    options to compile llama.cpp with
set -eu
cd "$(dirname "$0")"
version=$(sed -n 's/.*"llama-cpp-python>=\([0-9.]*\).*/\1/p' pyproject.toml)
wanted="llama-cpp-python==$version"
case $(uname -sm) in "Darwin arm64") variant=metal ;; *) variant=cpu ;; esac
variant=${LLAMA_WHEEL:-$variant}
[ -z "${CMAKE_ARGS:-}" ] || variant=none
index=${LLAMA_INDEX:-https://abetlen.github.io/llama-cpp-python/whl}/$variant
# What a CUDA wheel is linked with, so that no CUDA need be installed.
case $variant in cu12*) cuda="nvidia-cuda-runtime-cu12 nvidia-cublas-cu12" ;; *) cuda= ;; esac
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
trap 'exit 130' INT TERM HUP

fail() {
    echo "$*" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# how_to APT DNF APK PACMAN MACOS: this system's command that installs these packages.
how_to() {
    root=
    [ "$(id -u)" = 0 ] || root="sudo "
    if has apt-get; then echo "${root}apt install $1"
    elif has dnf; then echo "${root}dnf install $2"
    elif has apk; then echo "${root}apk add $3"
    elif has pacman; then echo "${root}pacman -S $4"
    elif [ "$(uname)" = Darwin ]; then echo "$5"
    else echo "install it with this system's packages"
    fi
}

has_compiler() {
    for compiler in ${CXX:-c++ g++ clang++}; do
        has "$compiler" && return
    done
    return 1
}

require_compiler() {
    has_compiler || fail "llama.cpp has to be compiled, and there is no C++ compiler: $(how_to g++ gcc-c++ g++ gcc "xcode-select --install")"
}

# Says at once that llama.cpp cannot be had: no compiler, no wheel in pip's cache, no index that answers.
require_llama() {
    has_compiler && return
    if [ -z "${CMAKE_ARGS:-}" ]; then
        cache=${PIP_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/pip}
        find "$cache" "$HOME/Library/Caches/pip" -name "llama_cpp_python-$version-*" 2>/dev/null |
            grep -q . && return
        ask='import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=1)'
        [ "$variant" != none ] && RES_OPTIONS="timeout:1 attempts:1" \
            "$python" -c "$ask" "$index/llama-cpp-python/" 2>/dev/null && return
    fi
    require_compiler
}

find_python() {
    for python in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$python" -c 'import ensurepip, venv' 2>/dev/null && return
            name=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            fail "This Python lacks its module venv: $(how_to "$name-venv" "$name" python3 python "brew install python")"
        fi
    done
    debian="python3.11 python3.11-venv"
    has python3 || debian="python3 python3-venv"
    fail "Python 3.11 or newer is needed: $(how_to "$debian" python3.12 python3 python "brew install python"); to name one: make demo PYTHON=/path/to/python3.12"
}

# What pip is at, of what it says: on a terminal one line that changes, elsewhere a few lines.
progress() {
    while read -r line; do
        case $line in
            "Collecting "*) line=${line#Collecting } && now="  ${line%%[!A-Za-z0-9._-]*}" ;;
            "["*/*"] "*) line=${line#\[} && now="  compiling llama.cpp: ${line%%\]*}" ;;
            "Installing collected packages"*) now="  writing the packages" ;;
            *) continue ;;
        esac
        if [ -t 1 ]; then printf '\r\033[K%s' "$now"
        else case $now in "${shown:-}") ;; *[05]/* | *writing*) echo "$now" && shown=$now ;; esac
        fi
    done
    [ ! -t 1 ] || printf '\r\033[K'
}

# run_pip ARGUMENTS: pip install, with its progress; where it fails, why.
run_pip() {
    log=$venv/install.log
    { "$venv/bin/pip" install --verbose --disable-pip-version-check "$@" 2>&1 || touch "$temporary/failed"; } |
        tee "$log" | progress
    [ -e "$temporary/failed" ] || return 0
    if grep -Eq "NewConnectionError|NameResolutionError|ConnectTimeoutError|Network is unreachable" "$log"; then
        fail "pip cannot reach the package index, which the first start needs; $log has the details."
    fi
    grep "error" "$log" | tail -n 5 >&2
    fail "pip could not install this; $log has the details."
}

install_in_venv() {
    case $1 in /*) venv=$1 ;; *) venv=$(pwd -P)/$1 ;; esac
    case $("$venv/bin/pip" --version 2>/dev/null) in
        *" from $venv/"*) ;;
        *) # missing, unfinished, or one that was made for another folder
            find_python
            require_llama
            echo "Making a virtual environment …"
            "$python" -m venv --clear "$venv"
            ;;
    esac
    echo "Installing $2 into $venv …"
    # No retries, and RES_OPTIONS for the name: an index that is away takes two seconds.
    if [ "$variant" = none ] ||
        ! RES_OPTIONS="timeout:2 attempts:1" "$venv/bin/pip" install --quiet --disable-pip-version-check \
            --no-deps --only-binary :all: --index-url "$index" --timeout 2 --retries 0 "$wanted" 2>/dev/null
    then
        [ "$variant" = none ] ||
            echo "No compiled llama.cpp from $index: it has none for this machine, or did not answer in 2 seconds."
        if [ -n "${CMAKE_ARGS:-}" ] || ! "$venv/bin/pip" cache list llama_cpp_python | grep -q -- "-$version-"; then
            require_compiler
            echo "llama.cpp is compiled: 5 to 15 minutes, 77 MB of downloads, 0.5 GB of disk meanwhile."
        fi
        # pip's cache does not know what CMAKE_ARGS were.
        cuda=
        TMPDIR=$temporary run_pip --no-deps ${CMAKE_ARGS:+--no-cache-dir --force-reinstall} "$wanted"
    fi
    # shellcheck disable=SC2086
    run_pip --editable "$2" $cuda
    echo "Installed."
}

install_tool() {
    if [ "$variant" != none ] && UV_HTTP_TIMEOUT=2 UV_HTTP_RETRIES=0 uv pip install --quiet --dry-run --no-deps \
        --no-build --target "$temporary" --default-index "$index" "$wanted" 2>/dev/null
    then
        echo "Installing agent with uv; llama.cpp comes compiled from $index."
        set -- --find-links "$index/llama-cpp-python/"
        for package in $cuda; do set -- "$@" --with "$package"; done
    else
        require_compiler
        echo "Installing agent with uv; llama.cpp is compiled, which takes 5 to 15 minutes."
        set -- ${CMAKE_ARGS:+--reinstall-package llama-cpp-python}
    fi
    uv tool install --force --with "$wanted" "$@" .
    echo "agent is in $(uv tool dir --bin); ./install.sh --uninstall removes it."
}

uninstall_tool() {
    uv tool uninstall agent-local
    for folder in "${XDG_CONFIG_HOME:-$HOME/.config}" "${XDG_STATE_HOME:-$HOME/.local/state}" \
        "${XDG_CACHE_HOME:-$HOME/.cache}" "$HOME/Library/Application Support" "$HOME/Library/Caches"; do
        [ ! -d "$folder/agent-local" ] || echo "Your settings, conversations or models stay: $folder/agent-local"
    done
}

case ${1:-} in
    --venv) install_in_venv "$2" "${3:-.}" ;;
    "" | --uninstall)
        has uv || fail "uv is needed: $(how_to "pipx && pipx install uv" uv uv uv "brew install uv"); https://docs.astral.sh/uv has more ways"
        if [ -z "${1:-}" ]; then install_tool; else uninstall_tool; fi
        ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" ;;
    *)
        echo "There is no option $1; ./install.sh --help lists them." >&2
        exit 2
        ;;
esac
