#!/bin/sh
# Epilog of Slurm: stores brimful's verdict on a job that failed in the job's AdminComment.
#
# slurmd runs it as root on every node of a job when the job has ended. It always ends with 0, because Slurm
# drains a node whose epilog fails, and it takes at most 40 seconds. A job without a failed run of brimful costs
# one `brimful runs` and no request to Slurm's daemons; another one costs a squeue and a sacctmgr.
#
# Settings, as variables in a file epilog.conf beside this one:
#   BRIMFUL             the program [default: /usr/local/bin/brimful]
#   BRIMFUL_STATE_DIR   the state directory of all users [default: the one in the user's home directory]

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
BRIMFUL=/usr/local/bin/brimful
here=$(dirname "$0")
# shellcheck source=/dev/null
[ -r "$here/epilog.conf" ] && . "$here/epilog.conf"

log() {
    logger -t brimful-epilog -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null
}

# The records belong to the user and are read with the user's rights, never with those of root.
as_user() {
    home=$(getent passwd "$SLURM_JOB_UID" | cut -d: -f6)
    group=$(getent passwd "$SLURM_JOB_UID" | cut -d: -f4)
    set -- env -i "PATH=$PATH" "HOME=${home:-/}" ${BRIMFUL_STATE_DIR:+"BRIMFUL_STATE_DIR=$BRIMFUL_STATE_DIR"} "$@"
    timeout -k 2 20 setpriv --reuid "$SLURM_JOB_UID" --regid "${group:-65534}" --init-groups \
        --no-new-privs --inh-caps=-all --bounding-set=-all "$@" </dev/null 2>/dev/null
}

store() {
    case "${SLURM_JOB_ID:-}${SLURM_JOB_UID:-}" in
        '' | *[!0-9]*) return ;;
    esac
    [ -x "$BRIMFUL" ] || return
    cd / || return
    comment=$(as_user python3 -I "$here/verdict.py" "$BRIMFUL" "$SLURM_JOB_ID" | head -c 8192)
    # What a program of the user has printed goes into the accounting only in this form.
    case "$comment" in
        bf1:*[!a-z0-9:_]*)
            log 'the comment has unexpected characters'
            return
            ;;
        bf1:*) ;;
        *) return ;;
    esac
    # The last element of an array has the number of the whole array, which would change all elements.
    job=$(timeout -k 2 6 squeue -h -t all -j "$SLURM_JOB_ID" -o '%A %F %K' 2>/dev/null |
        awk -v id="$SLURM_JOB_ID" '$1 == id { print ($3 ~ /^[0-9]+$/) ? $2 "_" $3 : $1; exit }')
    [ -n "$job" ] || { log 'squeue failed'; return; }
    # scontrol refuses to change a job that has ended, so this goes to the accounting.
    timeout -k 2 8 sacctmgr -i modify job where "jobid=$job" set "AdminComment=$comment" >/dev/null 2>&1 ||
        log 'sacctmgr failed'
}

store
exit 0
