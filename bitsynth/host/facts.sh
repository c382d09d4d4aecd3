# Prints facts of a board, one "name value" a line; unknown ones are left out.
say() { [ -z "$2" ] || printf '%s %s\n' "$1" "$2"; }
first() { [ ! -r "$1" ] || head -n 1 "$1" 2>/dev/null | tr -d '\000'; }
cpu=/sys/devices/system/cpu/cpu0/cpufreq
field() { sed -n "/^$1[[:space:]]*: */{s///p;q;}" /proc/cpuinfo 2>/dev/null; }
lscpu="$(LC_ALL=C lscpu 2>/dev/null || :)"
lscpu_field() { printf '%s\n' "$lscpu" | sed -n "/^$1: */{s///p;q;}"; }
fact() { value="$(field "$1")"; [ -n "$value" ] || value="$(lscpu_field "$2")"; printf '%s\n' "$value"; }
emulator() {
    case "$(systemd-detect-virt 2>/dev/null)" in qemu) echo "qemu, a whole system"; return ;; esac
    # The kernel's own machine, whatever it tells programs it is; kernels before 6.1 do not say it, but list its processor.
    here="$(family "$(uname -m)")" own="$(family "$(first /proc/sys/kernel/arch)")"
    if [ -n "$own" ] && [ "$own" != "$here" ]; then echo "an emulator of programs"; return; fi
    [ "$here" != arm ] || ! grep -q vendor_id /proc/cpuinfo 2>/dev/null || echo "an emulator of programs"
}
family() { case "$1" in aarch64* | arm*) echo arm ;; x86_64 | amd64 | i?86) echo x86 ;; *) echo "$1" ;; esac; }
# Of every core the MIDR, or its implementer and part.
midrs() {
    sed -n 's/^CPU \(implementer\|part\)[[:space:]]*: *//p' /proc/cpuinfo 2>/dev/null
    [ -n "$(field 'CPU part')" ] || sed -n p /sys/devices/system/cpu/cpu*/regs/identification/midr_el1 2>/dev/null
}
say machine "$(uname -m)"
say bits "$(getconf LONG_BIT 2>/dev/null)"
say kernel "$(uname -sr)"
say board "$(first /proc/device-tree/model)"
say processor "$(lscpu_field 'Model name')"
say vendor "$(fact vendor_id 'Vendor ID')"
say family "$(fact 'cpu family' 'CPU family')"
say model "$(fact model Model)"
say midrs "$(midrs | tr '\n' ' ')"
say cores "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
say features "$(field Features)$(field flags)"
say governor "$(first $cpu/scaling_governor)"
say clock_khz "$(first $cpu/scaling_cur_freq)"
say max_clock_khz "$(first $cpu/cpuinfo_max_freq)"
if command -v vcgencmd >/dev/null 2>&1; then
    say throttled "$(vcgencmd get_throttled 2>/dev/null | sed -n 's/^throttled=//p')"
    say temperature "$(vcgencmd measure_temp 2>/dev/null | sed -n 's/^temp=//p')"
fi
say emulator "$(emulator)"
say boot "$(first /proc/sys/kernel/random/boot_id)"
