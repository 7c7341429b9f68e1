package hold

// Counts is what the toxic has done since it was armed last: the evidence that it took effect.
//
// Taken = Held + Orphans + Released + Redelivered + Dropped + Lost.
type Counts struct {
	// Seen are the messages that were looked at, Matched those that match, and Taken those chosen.
	Seen    int `json:"seen"`
	Matched int `json:"matched"`
	Taken   int `json:"taken"`
	// Held wait in open connections now, Orphans outlived theirs and wait for a release.
	Held    int `json:"held"`
	Orphans int `json:"orphans"`
	// Released left over their own connection, Redelivered over a new one, Answered of these had
	// an answer. Dropped were discarded, Lost could not be redelivered.
	Released    int `json:"released"`
	Redelivered int `json:"redelivered"`
	Answered    int `json:"answered"`
	Dropped     int `json:"dropped"`
	Lost        int `json:"lost"`
	// Unframed counts connections whose bytes are not messages behind a length. They pass.
	Unframed  int    `json:"unframed"`
	LastError string `json:"last_error"`
}

func (c *Counts) add(more Counts) {
	c.Seen += more.Seen
	c.Matched += more.Matched
	c.Taken += more.Taken
	c.Held += more.Held
	c.Orphans += more.Orphans
	c.Released += more.Released
	c.Redelivered += more.Redelivered
	c.Answered += more.Answered
	c.Dropped += more.Dropped
	c.Lost += more.Lost
	c.Unframed += more.Unframed
	if more.LastError != "" {
		c.LastError = more.LastError
	}
}
