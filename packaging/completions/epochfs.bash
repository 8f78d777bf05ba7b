# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion for bash.
# Made of epochfs.bash.in and the tables of the program: edit those, and run `make completions`.

# The options of a command, a word each. What follows a '=' is what the option takes.
_epochfs_options() {
	case $1 in
	mount) echo '-f --foreground -o=options --options=options --take-over --help-all --ro --epoch=text --refresh=text --cache-dir=directory --cache-size=text --min-free=text --full=text --settle=text --patience=text --grace=text --durability=text --rules=text --resume --temporary=text --marker=text --log=text --step=text --node=text --nodes=text --run-id=text --run=text --message=text --db-type=text --on-epoch=file --on-epoch-timeout=text --catalog=file --keep=text --gc=text --gc-grace=text --threads=text --connections=text --timeout=text --upload-ahead=text --upload-limit=text --download-limit=text --lease=text --passthrough=text --supervise --metrics=text --log-file=file --log-level=text --allow_other --nonempty --noexec --suid --nosuid --dev --nodev' ;;
	umount) echo '--no-drain --timeout=text' ;;
	status) echo '--json -w --watch --usage' ;;
	log) echo '--json -n=text --count=text --graph' ;;
	latest) echo '--complete --step=text --path --json' ;;
	show) echo --json ;;
	explain) echo '--rules --json' ;;
	diff) echo --json ;;
	commit) echo '--json --whole --tag=text --step=text -m=text --message=text --db-type=text --db-prefix=text --path-type=text --path-prefix=text --node-names=text' ;;
	wait) echo '--json --timeout=text' ;;
	rollback) echo --json ;;
	tag) echo '--json -f --force -d --delete' ;;
	rm) echo --json ;;
	undrop) echo '--json --tag=text' ;;
	prune) echo '--keep=text -n --dry-run --json --gc --grace=text' ;;
	export) echo '--json --force --privileged --threads=text' ;;
	import) echo '--step=text --tag=text -m=text --message=text --remove=text --json --allow-changing --read-all --take-over -o=options --options=options --ro --epoch=text --refresh=text --cache-dir=directory --cache-size=text --min-free=text --full=text --settle=text --patience=text --grace=text --durability=text --rules=text --resume --temporary=text --marker=text --log=text --node=text --nodes=text --run-id=text --run=text --db-type=text --on-epoch=file --on-epoch-timeout=text --catalog=file --keep=text --gc=text --gc-grace=text --threads=text --connections=text --timeout=text --upload-ahead=text --upload-limit=text --download-limit=text --lease=text --passthrough=text --supervise --metrics=text --log-file=file --log-level=text --allow_other --nonempty --noexec --suid --nosuid --dev --nodev' ;;
	watch) echo '--json --grace=text --poll=text --take-over -o=options --options=options --ro --epoch=text --refresh=text --cache-dir=directory --cache-size=text --min-free=text --full=text --settle=text --patience=text --durability=text --rules=text --resume --temporary=text --marker=text --log=text --step=text --node=text --nodes=text --run-id=text --run=text --message=text --db-type=text --on-epoch=file --on-epoch-timeout=text --catalog=file --keep=text --gc=text --gc-grace=text --threads=text --connections=text --timeout=text --upload-ahead=text --upload-limit=text --download-limit=text --lease=text --passthrough=text --supervise --metrics=text --log-file=file --log-level=text --allow_other --nonempty --noexec --suid --nosuid --dev --nodev' ;;
	run) echo '--mount=directory -o=options --options=options --resume --checkpoint-exit-code=text --grace=text --ro --epoch=text --refresh=text --cache-dir=directory --cache-size=text --min-free=text --full=text --settle=text --patience=text --durability=text --rules=text --temporary=text --marker=text --log=text --step=text --node=text --nodes=text --run-id=text --run=text --message=text --db-type=text --on-epoch=file --on-epoch-timeout=text --catalog=file --keep=text --gc=text --gc-grace=text --threads=text --connections=text --timeout=text --upload-ahead=text --upload-limit=text --download-limit=text --lease=text --take-over --passthrough=text --supervise --metrics=text --log-file=file --log-level=text --allow_other --nonempty --noexec --suid --nosuid --dev --nodev' ;;
	verify) echo '--json --deep' ;;
	cache) echo '--json -f --force --cache-dir=directory' ;;
	fsck) echo '--json --read-data --repair --dry-run --cache-dir=directory' ;;
	gc) echo '--json -n --dry-run --grace=text --rewrite-below=text' ;;
	key) echo '--json --new-passphrase-file=file --new-key-file=file' ;;
	check) echo '--json --size=text' ;;
	doctor) echo '--json -q --quiet' ;;
	config) echo --json ;;
	debug) echo '-o=file --output=file' ;;
	help) echo --json ;;
	esac
	echo '--passphrase-file=file --key-file=file -h --help'
}

# The kind of value that an option of a command takes; nothing where it takes none.
_epochfs_value() {
	local option
	for option in $(_epochfs_options "$1"); do
		if [[ $option == "$2="* ]]; then
			echo "${option#*=}"
			return
		fi
	done
}

# What the first operand of a command may be, where that is one of a few words.
_epochfs_operands() {
	case $1 in
	cache) echo 'warm status list drop' ;;
	key) echo 'list add remove' ;;
	help) echo 'mount umount status log latest show explain diff commit wait restart rollback tag rm undrop prune export import watch run verify cache fsck gc key check doctor config debug help version' ;;
	esac
}

# The words that begin with $1 become the replies. Readline replaces only what follows the last '=' or ':' where it breaks words there.
_epochfs_reply() {
	local word=$1 breaks=${COMP_WORDBREAKS//[^=:]/} reply cut=
	shift
	[[ -z $breaks ]] || cut=${word%"${word##*["$breaks"]}"}
	COMPREPLY=()
	while read -r reply; do
		COMPREPLY+=("${reply#"$cut"}")
	done < <(compgen -W "$*" -- "$word")
	[[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace
}

# $1 is the kind, $2 the word up to the value, $3 the value so far.
_epochfs_complete_value() {
	local list=${3%"${3##*,}"} options=' ro epoch= refresh= cache-dir= cache-size= min-free= full=wait full=error settle= patience= grace= durability=local durability=remote rules= resume temporary= marker=none marker= log= step= node= nodes=auto nodes= run-id= run= message= db-type= on-epoch= on-epoch-timeout= catalog= keep= gc=on gc=off gc-grace= threads= connections= timeout= upload-ahead= upload-limit= download-limit= passphrase-file= key-file= lease= take-over passthrough=auto passthrough=on passthrough=off supervise metrics= log-file= log-level=error log-level=warning log-level=info log-level=debug allow_other nonempty noexec suid nosuid dev nodev'
	case $1 in
	file) compopt -o default ;;
	directory) compopt -o dirnames ;;
	options)
		if [[ ${3##*,} == @(cache-dir|on-epoch|catalog|passphrase-file|key-file|log-file)=* ]]; then
			compopt -o default
		else
			# shellcheck disable=SC2086 # a list of words
			_epochfs_reply "$2$3" ${options// / $2$list}
		fi
		;;
	esac
}

_epochfs() {
	local line=${COMP_LINE:0:COMP_POINT} words word before command kind
	# COMP_WORDS is cut at '=' and ':', too.
	read -ra words <<<"$line"
	[[ $line != *[[:blank:]] ]] || words+=('')
	word=${words[-1]} before=${words[-2]} command=${words[1]}
	COMPREPLY=()
	if ((${#words[@]} == 2)); then
		_epochfs_reply "$word" mount umount status log latest show explain diff commit wait restart rollback tag rm undrop prune export import watch run verify cache fsck gc key check doctor config debug help version --help --version
	elif [[ $command == run && " ${words[*]:2:${#words[@]}-3} " == *' -- '* ]]; then
		compopt -o default
		[[ $before != -- ]] || mapfile -t COMPREPLY < <(compgen -c -- "$word")
	elif kind=$(_epochfs_value "$command" "$before") && [[ $kind ]]; then
		_epochfs_complete_value "$kind" '' "$word"
	elif [[ $word == --*=* ]]; then
		_epochfs_complete_value "$(_epochfs_value "$command" "${word%%=*}")" "${word%%=*}=" "${word#*=}"
	elif [[ $word == -* ]]; then
		# shellcheck disable=SC2046 # a list of words
		_epochfs_reply "$word" $(_epochfs_options "$command" | sed 's/=[a-z]*//g')
	elif ((${#words[@]} == 3)) && kind=$(_epochfs_operands "$command") && [[ $kind ]]; then
		_epochfs_reply "$word" "$kind"
	else
		compopt -o dirnames
	fi
}
complete -F _epochfs epochfs
