----------------------------- MODULE Replication -----------------------------
(* Replication of one partition over three brokers, in leader epochs.

   Theory of operation. A controller keeps a log of records, one state of the partition and of the
   registrations each (`records`). Brokers apply them one by one, as late as they like (`Learn`).
   The leader of an epoch stores what clients write; followers fetch it, one fetch of each at a
   time (`Fetch`, `Serve`, `Take`), and a fetch tells the leader how far the follower has got. The
   high watermark is the least end of the stored ISR and of whoever was asked for (`Counted`).
   Another ISR is asked for, decided by the controller, and counts once its record has come back
   (`Shrink`, `Grow`, `Decide`, `Hear`). Processes are killed, and a machine may lose its power, and
   with it what was not synced (`Kill`, `Power`); the next process registers anew, and is in no ISR
   unless it was the last member.

   `Broken` names the check that is left out; "" is none. What a node would write down in a step is
   in `said`; whether a promise is broken, by all states so far, is `harm`. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Broken,  \* the variant
  Writes,  \* how many messages clients write at most
  Gap      \* how many steps lie between two faults or other rare steps, at least

Brokers == {1, 2, 3}
FirstOffset == 8  \* of the first record: those before it register the brokers

VARIABLES
  records,  \* the controller's log
  node,     \* broker -> what it has, and its process
  wire,     \* follower -> its fetch
  ask,      \* leader -> its request for another ISR
  lost,     \* brokers that lost their power, and have not registered since
  truth,    \* what was committed, and acknowledged: sets of offset and entry
  calm,     \* steps until the next rare one
  written,  \* how many messages there are
  said,     \* what the nodes write down in this step
  harm      \* the promises that are broken

vars == <<records, node, wire, ask, lost, truth, calm, written, said, harm>>

Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Least(a, b) == IF a < b THEN a ELSE b

Now == records[Len(records)]
Next1 == FirstOffset + Len(records)  \* the offset of the next record

Rare == calm = 0 /\ calm' = Gap
Usual == calm' = IF calm = 0 THEN 0 ELSE calm - 1

------------------------------------------------------------------------------
(* Logs. Offset o is at place o + 1. An entry is its leader epoch and its message. *)

End(log) == Len(log)
LastEpoch(log) == IF log = <<>> THEN -1 ELSE log[Len(log)].epoch
EpochsIn(log) == {log[i].epoch : i \in DOMAIN log}

\* The newest epoch of a log that is not newer than e, and where it ends there.
UpTo(log, e) ==
  LET known == {x \in EpochsIn(log) : x <= e}
      epoch == IF known = {} THEN -1 ELSE Max(known)
  IN [epoch |-> epoch, end |-> Cardinality({i \in DOMAIN log : log[i].epoch <= epoch})]

Has(log, fact) == fact[1] < Len(log) /\ log[fact[1] + 1] = fact[2]
Facts(log, end) == {<<o, log[o + 1]>> : o \in 0 .. end - 1}

------------------------------------------------------------------------------
(* What a leader knows and counts. *)

Unknown == [end |-> -1, epoch |-> -1, reg |-> -1]

EndOf(n, b, r) == IF r = b THEN End(n.log) ELSE n.ends[r].end

Counted(n, b) ==
  CASE Broken = "the leader counts itself only" -> {b}
    [] Broken = "a shrink counts before it is stored" /\ n.wanted # {} -> n.wanted
    [] Broken = "a replica being added is not counted" -> n.isr
    [] Broken = "a former leader commits alone" /\ n.epoch < Now.epoch -> {b}
    [] OTHER -> n.isr \cup n.adding

Held(n, b) ==
  LET ends == {EndOf(n, b, r) : r \in Counted(n, b)}
      \* Any two of the three have it, whether they are in the ISR or not.
      two == {e \in {EndOf(n, b, r) : r \in Brokers} :
                Cardinality({r \in Brokers : EndOf(n, b, r) >= e}) >= 2}
  IN IF Broken = "any two replicas count" THEN Max(two \cup {-1}) ELSE Min(ends)

Advance(n, b) ==
  LET held == Held(n, b)
      hw == IF n.role = "leader" /\ held > n.hw THEN Least(held, End(n.log)) ELSE n.hw
  IN [n EXCEPT !.hw = hw, !.waits = {o \in @ : o >= hw}]

Ends(n, b) == [r \in Brokers |-> EndOf(n, b, r)]
Answer(b, n, o, acks, error) ==
  [k |-> "answer", b |-> b, offset |-> o, v |-> n.log[o + 1].v, acks |-> acks, error |-> error,
   epoch |-> n.epoch, hw |-> n.hw, isr |-> n.isr, ends |-> Ends(n, b)]

RECURSIVE InOrder(_, _, _, _, _)
InOrder(S, b, n, acks, error) ==
  IF S = {} THEN <<>>
  ELSE <<Answer(b, n, Min(S), acks, error)>> \o InOrder(S \ {Min(S)}, b, n, acks, error)

\* What a leader says when it was `before` and is `n` now.
Moved(before, n, b) ==
  IF n.hw = before.hw THEN <<>>
  ELSE <<[k |-> "mark", b |-> b, hw |-> n.hw, end |-> End(n.log), epoch |-> n.epoch,
          isr |-> n.isr, counted |-> Counted(n, b), leads |-> TRUE]>>
       \o InOrder(before.waits \ n.waits, b, n, "all", "NONE")

Truth(before, n) ==
  [committed |-> truth.committed \cup IF n.hw > before.hw THEN Facts(n.log, n.hw) ELSE {},
   acked |-> truth.acked \cup {<<o, n.log[o + 1]>> : o \in before.waits \ n.waits}]

------------------------------------------------------------------------------
(* Harm, by the state alone. A message is lost if the broker that leads in the newest epoch lacks
   it, and at risk if a member of the stored ISR lacks it: the next election may lose it. *)

Promised == truth.committed \cup truth.acked
Lacks(b) == \E fact \in Promised : ~Has(node[b].log, fact)
Leads(b) == node[b].up /\ node[b].role = "leader" /\ Now.leader = b /\ node[b].epoch = Now.epoch
Found ==
  (IF \E p, q \in truth.committed : p[1] = q[1] /\ p[2] # q[2] THEN {"two at one offset"} ELSE {})
  \cup (IF \E b \in Brokers : Leads(b) /\ Lacks(b) THEN {"lost"} ELSE {})
  \cup (IF \E b \in Now.isr : node[b].up /\ node[b].reg = Now.reg[b] /\ Lacks(b)
        THEN {"at risk"} ELSE {})

------------------------------------------------------------------------------
(* The controller. *)

State(kind, about, leader, epoch, isr, reg, fenced) ==
  [kind |-> kind, about |-> about, leader |-> leader, epoch |-> epoch, isr |-> isr, reg |-> reg,
   fenced |-> fenced]

OfPartition(s, p) ==
  IF p.leader = s.leader /\ p.isr = s.isr THEN <<>>
  ELSE <<State("partition", 0, p.leader, p.epoch, p.isr, s.reg, s.fenced)>>

\* A member of the ISR that has not lost its power must remain: else nothing is promised.
Store(more, gone) ==
  /\ more[Len(more)].isr \ gone # {}
  /\ records' = records \o more
  /\ lost' = gone

RECURSIVE Said(_, _, _)
Said(more, at, who) ==
  IF more = <<>> THEN <<>>
  ELSE <<[k |-> "record", by |-> who, at |-> at, state |-> more[1]]>> \o Said(Tail(more), at + 1, who)

Committed(more) == Said(more, Next1, 0)

NextEpoch(s, leader) ==
  IF Broken = "an election does not raise the epoch" /\ leader # s.leader THEN s.epoch ELSE s.epoch + 1

\* How the partition may go on without a broker.
Without(s, b) ==
  LET isr == IF s.isr = {b} THEN s.isr ELSE s.isr \ {b}
      live == {c \in Brokers \ {b} : ~s.fenced[c]}
      may == IF Broken = "a leader from outside the ISR" THEN live ELSE live \cap isr
      leaders == IF s.leader # b THEN {s.leader} ELSE IF may = {} THEN {0} ELSE may
  IN {[leader |-> l, isr |-> IF l = 0 \/ l \in isr THEN isr ELSE {l}, epoch |-> NextEpoch(s, l)]
      : l \in leaders}

\* A lease ends, for the broker itself, too: it serves no client until it is active again.
Fence(b) ==
  LET s == [Now EXCEPT !.kind = "broker", !.about = b, !.fenced[b] = TRUE]
  IN
  /\ ~Now.fenced[b]
  /\ IF node[b].up THEN Rare ELSE Usual
  /\ \E p \in Without(s, b) :
       LET more == <<s>> \o OfPartition(s, p)
       IN
       /\ Store(more, lost)
       /\ said' = (IF node[b].active THEN <<[k |-> "fenced", b |-> b, reg |-> node[b].reg]>> ELSE <<>>)
                  \o Committed(more)
  /\ node' = [node EXCEPT ![b].active = FALSE]
  /\ UNCHANGED <<wire, ask, truth, written>>

Register(b) ==
  LET s == [Now EXCEPT !.kind = "broker", !.about = b, !.reg[b] = Next1, !.fenced[b] = TRUE]
      same == [leader |-> s.leader, isr |-> s.isr, epoch |-> s.epoch]
      ways == IF Broken = "a new process keeps its place in the ISR" THEN {same} ELSE Without(s, b)
  IN
  /\ Usual
  /\ node[b].up /\ node[b].reg = 0
  /\ \E p \in ways :
       LET more == <<s>> \o OfPartition(s, p)
       IN
       /\ Store(more, lost \ {b})
       /\ said' = Committed(more)
       \* It takes part once it has all that was stored with its registration.
       /\ node' = [node EXCEPT ![b].reg = Next1, ![b].applied = Len(records) + Len(more) - 1]
  /\ UNCHANGED <<wire, ask, truth, written>>

\* It has caught up with the records, so it is active from now on, in another broker epoch.
Unfence(b) ==
  LET s == [Now EXCEPT !.kind = "broker", !.about = b, !.reg[b] = Next1, !.fenced[b] = FALSE]
      leader == IF s.leader = 0 /\ b \in s.isr THEN b ELSE s.leader
      more == <<s>> \o OfPartition(s, [leader |-> leader, isr |-> s.isr, epoch |-> NextEpoch(s, leader)])
  IN
  /\ Usual
  /\ Now.fenced[b]
  /\ node[b].up /\ node[b].reg = Now.reg[b] /\ node[b].applied = Len(records)
  /\ Store(more, lost)
  /\ said' = Append(Committed(more), [k |-> "active", b |-> b, reg |-> Next1])
  /\ node' = [node EXCEPT ![b].reg = Next1, ![b].active = TRUE]
  /\ UNCHANGED <<wire, ask, truth, written>>

\* Leadership goes back to the preferred replica, the first one.
Prefer ==
  LET more == OfPartition(Now, [leader |-> 1, isr |-> Now.isr, epoch |-> NextEpoch(Now, 1)])
  IN
  /\ Rare
  /\ Now.leader \in {2, 3} /\ 1 \in Now.isr /\ ~Now.fenced[1]
  /\ Store(more, lost)
  /\ said' = Committed(more)
  /\ UNCHANGED <<node, wire, ask, truth, written>>

Refusal(l, q) ==
  CASE q.reg # Now.reg[l] /\ Broken # "a request of an old epoch is accepted" -> "STALE_BROKER_EPOCH"
    [] (Now.leader # l \/ q.epoch # Now.epoch) /\ Broken # "a request of an old epoch is accepted"
         -> "FENCED_LEADER_EPOCH"
    [] \E m \in q.isr \ Now.isr : Now.fenced[m] -> "INELIGIBLE_REPLICA"
    [] \E m \in q.isr : q.regs[m] < Now.reg[m] /\ Broken # "a bounced broker is accepted"
         -> "INELIGIBLE_REPLICA"
    [] Now.leader \notin q.isr -> "INVALID_REQUEST"
    [] OTHER -> "NONE"

Decide(l) ==
  /\ Usual
  /\ ask[l].at = "asked"
  /\ LET error == Refusal(l, ask[l])
         p == [leader |-> Now.leader, isr |-> ask[l].isr, epoch |-> Now.epoch + 1]
         more == IF error = "NONE" THEN OfPartition(Now, p) ELSE <<>>
     IN
     /\ IF more = <<>> THEN UNCHANGED <<records, lost>> ELSE Store(more, lost)
     /\ said' = Committed(more)
     /\ ask' = [ask EXCEPT ![l].at = "answered", ![l].error = error,
                           ![l].granted = IF more = <<>> THEN -1 ELSE p.epoch]
  /\ UNCHANGED <<node, wire, truth, written>>

------------------------------------------------------------------------------
(* Brokers: roles. *)

\* A broker applies a record: what it is from then on.
Leading(n, b, s) ==
  IF n.role = "leader" THEN Advance([n EXCEPT !.isr = s.isr, !.epoch = s.epoch, !.adding = {},
                                              !.wanted = {}, !.granted = FALSE], b)
  ELSE LET hw == IF Broken = "a new leader commits its whole log" THEN End(n.log) ELSE n.hw
       IN [n EXCEPT !.role = "leader", !.leader = b, !.isr = s.isr, !.epoch = s.epoch,
                    !.adding = {}, !.wanted = {}, !.granted = FALSE, !.begin = End(n.log),
                    !.ends = [r \in Brokers |-> Unknown], !.hw = hw]

Cut(n, to) == [n EXCEPT !.log = SubSeq(@, 1, to), !.hw = Least(@, to), !.flushed = Least(@, to)]

Followed(n, s) ==
  LET m == [n EXCEPT !.role = "follower", !.leader = s.leader, !.isr = s.isr, !.epoch = s.epoch,
                     !.waits = {}]
  IN IF Broken = "a follower truncates to its high watermark" THEN Cut(m, Least(m.hw, End(m.log))) ELSE m

Learnt(n, b, s) ==
  LET known == [r \in Brokers |-> IF n.ends[r].reg < s.reg[r] THEN Unknown ELSE n.ends[r]]
      m == [n EXCEPT !.ends = known, !.applied = @ + 1]
  IN CASE s.leader = b -> IF m.role = "leader" /\ m.epoch = s.epoch THEN m ELSE Leading(m, b, s)
       [] s.leader = 0 -> [m EXCEPT !.role = "none", !.isr = s.isr, !.epoch = s.epoch, !.waits = {}]
       [] m.role = "follower" /\ m.epoch = s.epoch /\ m.leader = s.leader -> m
       [] OTHER -> Followed(m, s)

Cutting(n, m, b, why) ==
  IF End(m.log) = End(n.log) THEN <<>>
  ELSE <<[k |-> "cut", b |-> b, to |-> End(m.log), end |-> End(n.log), hw |-> n.hw,
          epoch |-> m.epoch, why |-> why]>>

NowLeads(n, m, b) == m.role = "leader" /\ (n.role # "leader" \/ n.epoch # m.epoch)
NowFollows(n, m) == m.role = "follower" /\ (n.role # "follower" \/ n.epoch # m.epoch)
Left(n, m) == n.role = "leader" /\ m.role # "leader"

Role(n, m, b) ==
  (IF NowLeads(n, m, b)
   THEN <<[k |-> "leads", b |-> b, epoch |-> m.epoch, isr |-> m.isr, end |-> End(m.log), hw |-> n.hw]>>
   ELSE <<>>)
  \o (IF NowFollows(n, m)
      THEN <<[k |-> "follows", b |-> b, leader |-> m.leader, epoch |-> m.epoch,
              end |-> End(n.log), hw |-> n.hw]>> \o Cutting(n, m, b, "high_watermark")
      ELSE <<>>)
  \o (IF Left(n, m) THEN <<[k |-> "left", b |-> b, epoch |-> n.epoch]>> ELSE <<>>)

\* A leader that steps down answers what waits, never as committed.
StepsDown == IF Broken = "what waits is acknowledged on stepping down" THEN "NONE" ELSE "NOT_LEADER_OR_FOLLOWER"

Learn(b) ==
  LET n == node[b]
      s == records[n.applied + 1]
      m == Learnt(n, b, s)
      acks == IF StepsDown = "NONE" THEN {<<o, n.log[o + 1]>> : o \in n.waits} ELSE {}
  IN
  /\ Usual
  /\ n.up /\ n.reg # 0 /\ n.applied < Len(records)
  /\ node' = [node EXCEPT ![b] = m]
  /\ said' = Said(<<s>>, FirstOffset + n.applied, b) \o Role(n, m, b)
             \o IF Left(n, m) THEN InOrder(n.waits, b, n, "all", StepsDown)
                ELSE IF m.role = "leader" THEN Moved([n EXCEPT !.isr = m.isr], m, b) ELSE <<>>
  /\ truth' = IF Left(n, m) THEN [truth EXCEPT !.acked = @ \cup acks]
              ELSE IF m.role = "leader" THEN Truth(n, m) ELSE truth
  /\ UNCHANGED <<records, wire, ask, lost, written>>

------------------------------------------------------------------------------
(* Brokers: messages. *)

Write(b) ==
  LET n == node[b]
      v == written + 1
      acks == IF v % 3 = 0 THEN "one" ELSE "all"
      o == End(n.log)
      early == Broken = "acks=all is answered at once"
      waits == IF acks = "all" /\ ~early THEN n.waits \cup {o} ELSE n.waits
      stored == [n EXCEPT !.log = Append(@, [epoch |-> n.epoch, v |-> v]), !.waits = waits]
      m == Advance(stored, b)
  IN
  /\ Usual
  /\ n.active /\ n.role = "leader" /\ written < Writes
  /\ written' = v
  /\ node' = [node EXCEPT ![b] = m]
  /\ said' = <<[k |-> "sends", v |-> v, acks |-> acks],
               [k |-> "stores", b |-> b, offset |-> o, v |-> v, of |-> n.epoch, epoch |-> n.epoch,
                leads |-> TRUE]>>
             \o (IF acks = "one" \/ early THEN <<Answer(b, stored, o, acks, "NONE")>> ELSE <<>>)
             \o Moved(stored, m, b)
  /\ LET t == Truth(stored, m)
     IN truth' = IF acks = "all" /\ early THEN [t EXCEPT !.acked = @ \cup {<<o, m.log[o + 1]>>}] ELSE t
  /\ UNCHANGED <<records, wire, ask, lost>>

Fetch(b) ==
  LET n == node[b]
  IN
  /\ Usual
  /\ n.up /\ n.role = "follower" /\ wire[b].at = "idle"
  /\ wire' = [wire EXCEPT ![b] = [at |-> "asked", to |-> n.leader, epoch |-> n.epoch,
                                  end |-> End(n.log), last |-> LastEpoch(n.log), reg |-> n.reg,
                                  inc |-> n.inc, cut |-> Unknown, got |-> <<>>, hw |-> 0]]
  /\ said' = <<>>
  /\ UNCHANGED <<records, node, ask, lost, truth, written>>

Refused(n, q, f) ==
  \/ ~n.up
  \/ n.role # "leader"
  \/ q.epoch # n.epoch /\ Broken # "fetches of any epoch count"
  \/ n.applied > 0 /\ q.reg < records[n.applied].reg[f]

Serve(f) ==
  LET q == wire[f]
      l == q.to
      n == node[l]
      common == UpTo(n.log, q.last)
      diverges == common.epoch < q.last \/ common.end < q.end
      known == n.ends[f]
      now == [end |-> q.end, epoch |-> n.epoch, reg |-> q.reg]
      m == Advance([n EXCEPT !.ends[f] = now], l)
      same == known.end = now.end /\ known.reg = now.reg
  IN
  /\ Usual
  /\ q.at = "asked"
  /\ IF Refused(n, q, f)
     THEN /\ wire' = [wire EXCEPT ![f].at = "idle"]
          /\ said' = <<>>
          /\ UNCHANGED <<node, truth>>
     ELSE IF diverges /\ Broken # "a follower does not truncate"
     THEN /\ wire' = [wire EXCEPT ![f].at = "answered",
                                  ![f].cut = [end |-> common.end, epoch |-> common.epoch, reg |-> 0]]
          /\ said' = <<>>
          /\ UNCHANGED <<node, truth>>
     ELSE /\ wire' = [wire EXCEPT ![f].at = "answered", ![f].hw = m.hw,
                                  ![f].got = SubSeq(n.log, q.end + 1, End(n.log))]
          /\ node' = [node EXCEPT ![l] = m]
          /\ said' = (IF same THEN <<>>
                      ELSE <<[k |-> "counts", b |-> l, epoch |-> n.epoch, follower |-> f,
                              inc |-> q.inc, reg |-> q.reg, offset |-> q.end]>>)
                     \o Moved(n, m, l)
          /\ truth' = Truth(n, m)
  /\ UNCHANGED <<records, ask, lost, written>>

Cutoff(n, cut) ==
  IF Broken = "a follower that diverges drops its whole log" THEN 0
  ELSE Least(cut.end, UpTo(n.log, cut.epoch).end)

RECURSIVE Stored(_, _, _, _)
Stored(got, b, o, epoch) ==
  IF got = <<>> THEN <<>>
  ELSE <<[k |-> "stores", b |-> b, offset |-> o, v |-> got[1].v, of |-> got[1].epoch,
          epoch |-> epoch, leads |-> FALSE]>> \o Stored(Tail(got), b, o + 1, epoch)

Take(b) ==
  LET n == node[b]
      q == wire[b]
      cut == Cut(n, Least(Cutoff(n, q.cut), End(n.log)))
      log == n.log \o q.got
      hw == Max({n.hw, Least(q.hw, Len(log))})
      m == [n EXCEPT !.log = log, !.hw = hw]
      learns == IF hw = n.hw THEN <<>>
                ELSE <<[k |-> "mark", b |-> b, hw |-> hw, end |-> Len(log), epoch |-> n.epoch,
                        isr |-> {}, counted |-> {}, leads |-> FALSE]>>
  IN
  /\ Usual
  /\ q.at = "answered"
  /\ wire' = [wire EXCEPT ![b].at = "idle"]
  /\ IF ~n.up \/ n.role # "follower" \/ n.leader # q.to \/ n.epoch # q.epoch \/ n.inc # q.inc
     THEN said' = <<>> /\ UNCHANGED node
     ELSE IF q.cut # Unknown
     THEN said' = Cutting(n, cut, b, "leader_epoch") /\ node' = [node EXCEPT ![b] = cut]
     ELSE said' = Stored(q.got, b, End(n.log), n.epoch) \o learns /\ node' = [node EXCEPT ![b] = m]
  /\ UNCHANGED <<records, ask, lost, truth, written>>

Read(b) ==
  LET n == node[b]
  IN
  /\ Rare
  /\ n.active /\ n.role = "leader" /\ n.hw > 0
  /\ said' = <<[k |-> "reads", b |-> b, hw |-> n.hw, epoch |-> n.epoch, end |-> End(n.log),
                got |-> [i \in 1 .. n.hw |-> n.log[i].v]]>>
  /\ UNCHANGED <<records, node, wire, ask, lost, truth, written>>

Flush(b) ==
  LET n == node[b]
  IN
  /\ Rare
  /\ n.up /\ n.reg # 0 /\ (n.flushed # End(n.log) \/ n.saved # n.hw)
  /\ node' = [node EXCEPT ![b].flushed = End(n.log), ![b].saved = n.hw]
  /\ said' = <<[k |-> "flushes", b |-> b, hw |-> n.hw, end |-> End(n.log)]>>
  /\ UNCHANGED <<records, wire, ask, lost, truth, written>>

------------------------------------------------------------------------------
(* Brokers: the ISR. *)

Image(n) == records[n.applied]

Asks(b, isr) ==
  LET n == node[b]
      regs == [r \in Brokers |-> IF r = b THEN n.reg
                                 ELSE IF r \in isr \ n.isr THEN n.ends[r].reg ELSE Image(n).reg[r]]
      wants == [n EXCEPT !.wanted = isr]
      m == Advance(wants, b)
  IN
  /\ n.up /\ n.role = "leader" /\ ask[b].at = "idle" /\ ~n.granted
  /\ n.applied > 0 /\ Image(n).reg[b] = n.reg
  /\ node' = [node EXCEPT ![b] = [m EXCEPT !.adding = @ \cup (isr \ n.isr)]]
  /\ said' = Moved(n, m, b)
             \o <<[k |-> "asks", b |-> b, epoch |-> n.epoch, reg |-> n.reg, isr |-> n.isr,
                   new |-> isr, ends |-> Ends(n, b), hw |-> m.hw, begin |-> n.begin]>>
  /\ truth' = Truth(n, m)
  /\ ask' = [ask EXCEPT ![b] = [at |-> "asked", epoch |-> n.epoch, isr |-> isr, regs |-> regs,
                                reg |-> n.reg, inc |-> n.inc, error |-> "", granted |-> -1]]
  /\ UNCHANGED <<records, wire, lost, written>>

\* A follower has not kept up. Which one that is, is chance here.
Shrink(b, f) ==
  /\ f \in node[b].isr \ {b}
  /\ Rare
  /\ Asks(b, node[b].isr \ {f})

MayJoin(n, f) ==
  LET known == n.ends[f]
      least == CASE Broken = "a follower joins the ISR behind" -> n.hw - 1
                 [] Broken = "a follower joins the ISR before the leader's begin" -> n.hw
                 [] OTHER -> Max({n.hw, n.begin})
  IN known.end >= 0 /\ known.end >= least /\ known.epoch = n.epoch

Grow(b, f) ==
  /\ Usual
  /\ node[b].role = "leader" /\ node[b].applied > 0
  /\ f \notin node[b].isr /\ ~Image(node[b]).fenced[f]
  /\ MayJoin(node[b], f)
  /\ Asks(b, node[b].isr \cup {f})

Hear(b) ==
  LET n == node[b]
      q == ask[b]
      ours == n.up /\ n.inc = q.inc /\ n.role = "leader"
      \* Of no other refusal is it known that no earlier request was stored.
      certain == q.error \in {"INELIGIBLE_REPLICA", "INVALID_REQUEST"} /\ n.epoch = q.epoch
      m == IF certain THEN Advance([n EXCEPT !.adding = {}, !.wanted = {}], b)
           ELSE IF q.granted > n.epoch THEN [n EXCEPT !.granted = TRUE] ELSE n
  IN
  /\ Usual
  /\ q.at = "answered"
  /\ ask' = [ask EXCEPT ![b].at = "idle"]
  /\ IF ours
     THEN /\ node' = [node EXCEPT ![b] = m]
          /\ said' = <<[k |-> "answered", b |-> b, epoch |-> q.epoch, error |-> q.error,
                        isr |-> IF q.error = "NONE" THEN q.isr ELSE {}, granted |-> q.granted]>>
                     \o Moved(n, m, b)
          /\ truth' = Truth(n, m)
     ELSE said' = <<>> /\ UNCHANGED <<node, truth>>
  /\ UNCHANGED <<records, wire, lost, written>>

\* The request or its answer is lost; what was asked for may be stored.
Lose(b) ==
  /\ Rare
  /\ ask[b].at # "idle"
  /\ ask' = [ask EXCEPT ![b].at = "idle"]
  /\ said' = <<>>
  /\ UNCHANGED <<records, node, wire, lost, truth, written>>

------------------------------------------------------------------------------
(* Brokers: processes. *)

Ended(n) == [n EXCEPT !.up = FALSE, !.active = FALSE, !.role = "none", !.waits = {}, !.adding = {}, !.wanted = {},
                      !.granted = FALSE]

Kill(b) ==
  /\ Rare
  /\ node[b].up
  /\ node' = [node EXCEPT ![b] = Ended(@)]
  /\ wire' = [wire EXCEPT ![b].at = "idle"]
  /\ said' = <<[k |-> "killed", b |-> b]>>
  /\ UNCHANGED <<records, ask, lost, truth, written>>

\* The machine loses its power. Where a member of the ISR loses what it had not synced, another one
\* must stay, and what it had asked for must not arrive later.
Power(b) ==
  /\ Rare
  /\ node[b].up
  /\ Now.isr \ (lost \cup {b}) # {}
  /\ node' = [node EXCEPT ![b] = Cut(Ended(@), @.flushed)]
  /\ wire' = [wire EXCEPT ![b].at = "idle"]
  /\ ask' = [ask EXCEPT ![b].at = "idle"]
  /\ lost' = lost \cup {b}
  /\ said' = <<[k |-> "power", b |-> b, lost |-> End(node[b].log) > node[b].flushed]>>
  /\ UNCHANGED <<records, truth, written>>

Start(b) ==
  LET n == node[b]
      hw == Least(n.saved, End(n.log))
  IN
  /\ Usual
  /\ ~n.up
  /\ node' = [node EXCEPT ![b] = [n EXCEPT !.up = TRUE, !.inc = @ + 1, !.reg = 0, !.applied = 0,
                                           !.epoch = -1, !.hw = hw]]
  /\ said' = <<[k |-> "started", b |-> b]>>
  /\ UNCHANGED <<records, wire, ask, lost, truth, written>>

------------------------------------------------------------------------------
Init ==
  /\ records = <<State("partition", 0, 1, 0, Brokers, [b \in Brokers |-> b + 3], [b \in Brokers |-> FALSE])>>
  /\ node = [b \in Brokers |->
       [up |-> TRUE, active |-> TRUE, inc |-> 1, reg |-> b + 3, applied |-> 1,
        role |-> IF b = 1 THEN "leader" ELSE "follower", leader |-> 1, epoch |-> 0, isr |-> Brokers,
        log |-> <<>>, hw |-> 0, saved |-> 0, flushed |-> 0, ends |-> [r \in Brokers |-> Unknown],
        adding |-> {}, wanted |-> {}, granted |-> FALSE, begin |-> 0, waits |-> {}]]
  /\ wire = [b \in Brokers |->
       [at |-> "idle", to |-> 1, epoch |-> 0, end |-> 0, last |-> -1, reg |-> b + 3, inc |-> 1,
        cut |-> Unknown, got |-> <<>>, hw |-> 0]]
  /\ ask = [b \in Brokers |->
       [at |-> "idle", epoch |-> 0, isr |-> {}, regs |-> [r \in Brokers |-> 0], reg |-> b + 3,
        inc |-> 1, error |-> "", granted |-> -1]]
  /\ lost = {}
  /\ truth = [committed |-> {}, acked |-> {}]
  /\ calm = Gap
  /\ written = 0
  /\ said = <<>>
  /\ harm = {}

Next ==
  /\ harm' = harm \cup Found
  /\ \/ \E b \in Brokers :
          \/ Write(b) \/ Fetch(b) \/ Serve(b) \/ Take(b) \/ Learn(b)
          \/ Decide(b) \/ Hear(b) \/ Lose(b)
          \/ Fence(b) \/ Register(b) \/ Unfence(b)
          \/ Kill(b) \/ Power(b) \/ Start(b) \/ Flush(b) \/ Read(b)
          \/ \E f \in Brokers : Shrink(b, f) \/ Grow(b, f)
     \/ Prefer

Spec == Init /\ [][Next]_vars

\* Of the unbroken model.
Kept == harm = {}
=============================================================================
