"""Verbs that descriptions of tools are written with."""

from typing import Final

VERBS: Final = """
accept access acknowledge activate add adjust adopt advance allocate allow analyse analyze
annotate answer append apply approve archive arrange ask assemble assign associate attach
authenticate authorize backup begin bind blend block book boot broadcast browse build bulk
calculate call cancel capture cast categorize chain change chat check choose claim classify
clean clear click clone close coerce collect combine commit compare compile complete compose
compress compute concatenate configure confirm connect consume contain control convert copy
count crawl create crop customize cut deactivate debug decide decline decode decompress decrypt
deduplicate define delete deliver demonstrate deny depend deploy deregister derive describe
design destroy detach detect determine diagnose diff digest disable disallow disassociate
disconnect discover dismiss dispatch display distribute divide do download draft drain draw drop
dump duplicate echo edit embed emit employ empty enable encode encrypt end enqueue enrich enrol
enroll ensure enter enumerate escape estimate evaluate examine exchange exclude execute exist
expand expire explain explore export expose extend extract fail fetch fill filter find finish
fire flag flush follow force fork format forward freeze gather generate geocode get give grant
ground group guess handle hash help highlight hold host identify ignore import improve include
increase increment index indicate infer ingest initialize inject insert inspect install
instantiate integrate interact interpret interrupt invalidate invert invite invoke issue iterate
join keep kill label launch learn leave let leverage limit link lint list listen load locate
lock log look lookup maintain make manage map mark match measure mention merge migrate mine
minimize mirror mix mock model modify monitor mount move multiply name navigate negotiate
normalize notify observe obtain offer open optimize orchestrate order organize output overwrite
pack paint parse partition patch pause peek perform permit persist pick pin ping plan play point
poll pop populate post power predict prepare present prevent preview print prioritize process
produce profile promote prompt propose protect prove provide provision publish pull purchase
purge push put quantize query queue quote raise randomize rank reach react reactivate read
reboot rebuild receive recommend reconcile record recover redact redeem redirect redo reduce
refer reference reflect refresh refund regenerate register reindex reject relate release reload
remember remind remove rename render renew reopen reorder repair repeat replace reply report
represent request rerun reschedule resend reserve reset reshape resize resolve respond restart
restore resubmit resume retrieve retry return reverse revert review revoke rewrite ring roll
rotate route run sample sanitize save say scale scan schedule score scrape seal search seed
select send sense separate serve set settle share shorten show shrink shuffle shut sign simulate
skip sleep slice snapshot solve sort spawn specify spin split stage start stash step stop store
stream stringify strip structure submit subscribe subtract suggest sum summarise summarize
suppress surface suspend swap switch sync synchronize tag tail take tally target tell terminate
test throw toggle tokenize touch trace track trade train transcode transcribe transfer transform
translate trigger trim truncate try turn type unarchive unassign unban unblock undo unfollow
uninstall unlink unlock unmount unpack unpin unset unstage unsubscribe unwrap update upgrade
upload upsert upvote use vacuum validate verify view visit vote wait walk warn watch wipe
withdraw work wrap write yield zip zoom
"""
