#!/usr/bin/env bash
# Names the Java that Spark lacks, with the line that installs it. Usage: require-java.sh
set -u
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p')
[ "${version:-0}" -ge 17 ] && exit 0
found=${version:+, and $java is Java $version}
line="apt-get update && apt-get install -y openjdk-17-jre-headless"
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && [ -z "${JAVA_HOME:-}" ]; then
  echo "installing what Spark needs: Java 17" >&2
  eval "$line" >&2
else
  echo "Spark needs Java 17 or newer$found. Install with: sudo sh -c '$line', and let JAVA_HOME name it or be unset" >&2
  exit 1
fi
