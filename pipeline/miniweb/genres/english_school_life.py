"""Phrase books of English pages around mathematics that teach none: schools, tutors, sites, prizes.

These are the hard negatives of the classifier: the words are there, the mathematics is not.
"""

from pipeline.miniweb.genres.english_press import DAYS, PEOPLE
from pipeline.miniweb.grammar import Phrases

SCHOOL_NEWS: Phrases = {
    "person": PEOPLE,
    "day": DAYS,
    "title": (
        "School news, <day>",
        "Timetable for week <1..52>",
        "Exam dates for grade <5..12>",
        "Parents' evening in <@town>",
        "Our maths team comes <2..9>th in <@town>",
    ),
    "lead": (
        "Dear parents, the new term starts on <day> at <8..9> am.",
        "Pupils of grade <5..12> took part in the mathematics contest of <@town> last <day>.",
    ),
    "body": (
        "Room <100..340> is closed because of building work.",
        "The mathematics exam takes <60..180> minutes; bring a ruler and two pencils.",
        "<person> teaches grade <5..9> and runs the chess club.",
        "Our team came <2..9>th out of <20..90> schools.",
        "Lunch costs <2..6>.<10..90> from next month.",
        "The bus leaves at <6..8>.<10..55> from the main gate.",
        "We collected <200..3000> euros at the summer fair.",
        "Homework club: <day> and <day>, <2..4> to <4..6> pm.",
        "<person> won a book token for the best essay.",
        "The algebra course of <person> is full; there is a waiting list.",
        "Please return all library books by <day>.",
        "Class <5..9>b wrote their test, the average mark was <2..4>.",
        "The theatre group looks for <3..12> actors.",
        "Lost property: <2..14> jackets, one shoe, a trumpet.",
        "A new caretaker, <person>, started on <day>.",
        "The school has <300..1400> pupils and <30..90> teachers.",
        "Calculators can be ordered at the office for <15..90> euros.",
    ),
}

TUTORING: Phrases = {
    "person": PEOPLE,
    "day": DAYS,
    "title": (
        "Maths tutor in <@town>",
        "Private lessons: algebra, geometry, calculus",
        "<10..30> percent off our exam course",
        "Tutoring prices <2023..2026>",
    ),
    "lead": (
        "Better marks in mathematics within <4..12> weeks, or your money back.",
        "We offer private lessons in algebra and calculus in <@town>.",
    ),
    "body": (
        "One lesson of <45..90> minutes costs <18..65> euros.",
        "Our <10..80> tutors have degrees in mathematics or physics.",
        "<person> has taught equations and fractions for <5..30> years.",
        "Book <5..10> lessons and get one free.",
        "<88..99> percent of our students pass the exam.",
        "Groups have at most <3..6> students.",
        "We come to your home in <@town> and <town>.",
        "The first lesson is a free trial.",
        "Call us on <day> between <8..10> am and <4..6> pm.",
        "You can cancel up to <12..48> hours before the lesson.",
        '"My son likes algebra now," says <person> from <town>.',
        "Online courses with video start every <day>.",
        "Gift cards are available from <20..100> euros.",
        "Our office is on the second floor, next to the pharmacy.",
        "Payment is by bank transfer within <7..30> days.",
        "Teachers get a discount of <5..20> percent.",
    ),
    "row_header": ("Course|Lessons|Price",),
    "row": (
        "Algebra|<5..20>|<99..399>",
        "Geometry|<5..20>|<99..399>",
        "Calculus|<5..20>|<149..499>",
        "Statistics|<5..20>|<149..499>",
        "Exam week|<5..10>|<199..599>",
    ),
}

SITE: Phrases = {
    "person": PEOPLE,
    "title": (
        "About this site",
        "Contact",
        "Terms of use, version <1..9>",
        "Privacy",
        "Frequently asked questions",
        "User list, page <2..90>",
        "How to cite",
    ),
    "lead": (
        "This site is run by <person> from <@town>.",
        "Welcome! The site has <200..9000> members and <1000..90000> pages.",
        "Last change of these rules: <2018..2024>.",
    ),
    "body": (
        "We use cookies to count visitors; you can switch them off.",
        "Questions go to the editors, who answer within <2..9> days.",
        "Be polite; posts without a question are removed.",
        "Formulas are rendered by a script that loads in your browser.",
        "Members with more than <100..3000> points may edit posts.",
        "The server moved to <@town> in <2012..2022>.",
        "You may copy the text if you name the source.",
        "Please do not post the same thing twice.",
        "Accounts that are not used for <12..36> months are deleted.",
        "The search box is at the top right of each page.",
        "Donations paid for <10..90> percent of the costs.",
        "We do not sell your data.",
        "The site started as a notebook for friends in <1999..2015>.",
        "Moderators: <user>, <user> and <user>.",
        "For printing, use the link at the bottom.",
        "Passwords must have at least <8..14> characters.",
    ),
    "item": (
        "<user>, member since <2005..2023>, <10..9000> posts",
        "<user> from <town>, <10..9000> posts",
        "Section A: <100..9000> threads",
        "Section B: <100..9000> threads",
        "Archive <2008..2023>",
        "Newest member: <user>",
        "Online now: <3..90> guests",
    ),
}

PRIZE: Phrases = {
    "person": PEOPLE,
    "title": (
        "<@person> wins mathematics prize",
        "The life of <@person>",
        "Interview: <@person> on numbers and music",
        "<@town> university mourns <@person>",
    ),
    "lead": (
        "<@person>, professor at <@town>, receives a prize of <50..900> thousand euros for a theorem about "
        "prime numbers.",
        "At <24..79>, <@person> still writes every proof by hand.",
    ),
    "body": (
        "She was born in <town> in <1930..1990> as the third of <4..7> children.",
        "The theorem had been open for <30..150> years.",
        '"I never liked sums at school," the mathematician says with a laugh.',
        "The jury praised the beauty of the proof.",
        "He plays the cello and cycles <10..40> kilometres to work.",
        "Her office is full of paper; there is no computer.",
        "More than <100..900> papers carry that name.",
        "The ceremony takes place in <@town> in <2024..2026>.",
        "Students remember lectures without a single note.",
        "A film about the discovery was seen by <1..9> million people.",
        "The prize is given every <2..5> years.",
        '"Geometry is like a walk in fog," according to <person>.',
        "After a stay in <town> the couple returned in <1970..2015>.",
        "Algebra was only a hobby at first.",
        "The money goes to a fund for young researchers.",
        "Colleagues call the result the most important of the decade.",
    ),
}

SCHOOL_LIFE_BOOKS: dict[str, Phrases] = {
    "school_news": SCHOOL_NEWS,
    "tutoring": TUTORING,
    "site": SITE,
    "prize": PRIZE,
}
